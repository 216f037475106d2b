"""The lowest floor: files, the model of rack.yaml, hardware, ssh, RouterOS. It knows no role and no command line."""
