package client_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/query/client"
)

// TestWatchTellsWhy: who watches a server that is not there hears of it before the wait.
func TestWatchTellsWhy(t *testing.T) {
	t.Parallel()
	c, err := client.New("http://"+refusing(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	told := 0
	c.Retrying = func(why error, wait time.Duration) {
		if told++; !errors.Is(why, syscall.ECONNREFUSED) || wait <= 0 {
			t.Errorf("told of %v, %s", why, wait)
		}
		cancel()
	}
	err = c.Watch(ctx, nil, func(*client.Event) error { return nil })
	if !errors.Is(err, context.Canceled) || told != 1 {
		t.Errorf("told %d times, ended with %v", told, err)
	}
}

// refusing is an address where nobody listens, and nobody else can: its socket never does.
func refusing(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}
