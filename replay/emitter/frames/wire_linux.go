package frames

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// openInterface opens an interface for sending whole Ethernet frames.
func openInterface(name string) (send func([]byte) error, closeSocket func() error, err error) {
	device, err := net.InterfaceByName(name)
	if err != nil {
		return nil, nil, fmt.Errorf("find it: %w", err)
	}
	if device.Flags&net.FlagUp == 0 {
		return nil, nil, fmt.Errorf("it is down: ip link set %s up", name)
	}
	// A socket with protocol 0 receives nothing.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return nil, nil, fmt.Errorf("open packet socket: %w: run as root, or sudo setcap cap_net_raw+ep \"$(command -v csigscope)\"", err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("open packet socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: device.Index}); err != nil {
		_ = unix.Close(fd)
		return nil, nil, fmt.Errorf("bind packet socket: %w", err)
	}
	return func(frame []byte) error { return sendFrame(fd, frame) }, func() error { return unix.Close(fd) }, nil
}

// sendFrame retries while the interface's queue is full, until its nominal pauses add up to 5 seconds.
func sendFrame(fd int, frame []byte) error {
	const patience, step = 5 * time.Second, 20 * time.Microsecond
	for waited := time.Duration(0); ; waited += step {
		_, err := unix.Write(fd, frame)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EMSGSIZE):
			return errTooLong
		case (errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EAGAIN)) && waited < patience:
			time.Sleep(step)
		default:
			return err
		}
	}
}
