"""What every private function is, for any engine: public arguments, events, measurements, and the codes of its errors."""
