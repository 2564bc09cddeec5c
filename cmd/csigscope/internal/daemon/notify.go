package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"
)

// Notifier notifies systemd of the state of the process (sd_notify(3)). Without systemd it does
// nothing.
type Notifier struct {
	socket   string
	watchdog time.Duration // 0: not requested
	logger   *slog.Logger
}

// newNotifier reads the socket and the watchdog interval from the environment.
func newNotifier(getenv func(string) string, pid int, logger *slog.Logger) *Notifier {
	n := &Notifier{socket: getenv("NOTIFY_SOCKET"), logger: logger}
	if p := getenv("WATCHDOG_PID"); p == "" || p == strconv.Itoa(pid) {
		if us, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64); err == nil && us > 0 {
			n.watchdog = time.Duration(us) * time.Microsecond
		}
	}
	return n
}

// Ready reports that the process has started.
func (n *Notifier) Ready() { n.notify("READY=1") }

// Reloading reports that the process reloads its configuration; Ready ends that.
func (n *Notifier) Reloading() {
	state := "RELOADING=1"
	if now, ok := monotonic(); ok {
		state += fmt.Sprintf("\nMONOTONIC_USEC=%d", now.Microseconds())
	}
	n.notify(state)
}

// Stopping reports that the process is ending.
func (n *Notifier) Stopping() { n.notify("STOPPING=1") }

// Run feeds systemd's watchdog while the process is alive, until the context ends. If the
// process is not alive, systemd restarts it.
func (n *Notifier) Run(ctx context.Context, h *Health) error {
	if n.socket == "" || n.watchdog == 0 {
		<-ctx.Done()
		return nil
	}
	tick := time.Tick(n.watchdog / 3)
	for {
		if err := h.Alive(); err != nil {
			n.logger.Error("no progress: systemd will restart this process", slog.String("error", err.Error()))
		} else {
			n.notify("WATCHDOG=1")
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return nil
		}
	}
}

func (n *Notifier) notify(state string) {
	if n.socket == "" {
		return
	}
	if err := send(n.socket, state); err != nil {
		n.logger.Warn("systemd cannot be notified", slog.String("state", state), slog.String("error", err.Error()))
	}
}

func send(socket, state string) error {
	if !strings.HasPrefix(socket, "/") && !strings.HasPrefix(socket, "@") {
		return errors.New("NOTIFY_SOCKET is no Unix socket")
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("reach systemd: %w", err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	return nil
}
