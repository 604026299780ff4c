"""What is read from objects, devices and the process."""
