"""What every private function is, for any engine: its public arguments, event, measurement and error codes."""
