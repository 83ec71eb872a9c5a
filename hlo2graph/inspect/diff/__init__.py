"""What has changed from one plan to another."""
