//go:build !linux

package frames

import "errors"

func openInterface(string) (send func([]byte) error, closeSocket func() error, err error) {
	return nil, nil, errors.New("sending needs Linux: write captures to a folder instead")
}
