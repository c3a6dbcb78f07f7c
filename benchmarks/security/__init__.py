"""What encryption and logins cost."""
