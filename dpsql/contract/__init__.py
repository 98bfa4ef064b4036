"""Parts of a private function on any engine: its public arguments, event, measurement and error codes."""
