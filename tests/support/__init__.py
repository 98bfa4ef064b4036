"""What several tests share: exact laws of the private functions, planted faults, and runners."""
