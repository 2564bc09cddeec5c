package daemon

import (
	"context"
	"net"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// manager simulates systemd's end of the socket. next returns the next message within the time,
// empty for none.
func manager(t *testing.T) (socket string, next func(within time.Duration) string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return socket, func(within time.Duration) string {
		b := make([]byte, 100)
		_ = l.SetReadDeadline(time.Now().Add(within))
		n, err := l.Read(b)
		if err != nil {
			return ""
		}
		return string(b[:n])
	}
}

func TestNotify(t *testing.T) {
	const soon = time.Minute // long enough for a busy machine
	socket, next := manager(t)
	env := map[string]string{"NOTIFY_SOCKET": socket, "WATCHDOG_USEC": strconv.Itoa(30_000), "WATCHDOG_PID": "42"}
	getenv := func(key string) string { return env[key] }
	n := newNotifier(getenv, 42, logger(t))
	for _, step := range []struct {
		do   func()
		want string
	}{{n.Ready, "READY=1"}, {n.Stopping, "STOPPING=1"}} {
		step.do()
		if got := next(soon); got != step.want {
			t.Errorf("got %q, want %q", got, step.want)
		}
	}
	h := newHealth(time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- n.Run(ctx, h) }()
	for range 3 {
		if got := next(soon); got != "WATCHDOG=1" {
			t.Fatalf("while it is alive: %q", got)
		}
	}
	h.Watch("loop", time.Nanosecond)
	// Earlier messages may still wait in the socket.
	for late := time.Now().Add(soon); next(200*time.Millisecond) != ""; {
		if time.Now().After(late) {
			t.Fatal("a stuck process reports to the watchdog")
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for what, n := range map[string]*Notifier{
		"without systemd":  newNotifier(func(string) string { return "" }, 42, logger(t)),
		"of another":       newNotifier(getenv, 43, logger(t)),
		"with a bad place": newNotifier(func(string) string { return "vsock:2" }, 42, logger(t)),
	} {
		n.Ready()
		if err := n.Run(ctx, h); err != nil || n.watchdog != 0 {
			t.Errorf("%s: %v, watchdog %s", what, err, n.watchdog)
		}
	}
}
