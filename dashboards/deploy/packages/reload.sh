#!/bin/sh
# Runs after the package was installed, upgraded or removed: systemd reads the units again.
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || true
fi
