package chdb

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// ChildEnv is "1" in the environment of a child of Start. A program whose Options.Command runs
// itself without arguments branches on it.
const ChildEnv = "CSIGSCOPE_ENGINE_CHILD"

// optionsEnv carries childOptions from Start to Serve.
const optionsEnv = "CSIGSCOPE_ENGINE_OPTIONS"

// childOptions are Start's options for the child, as JSON.
type childOptions struct {
	Dir       string `json:"dir"`
	Library   string `json:"library,omitempty"`
	MaxMemory uint64 `json:"max_memory,omitempty"`
	// ConfigFile is the field of Options.
	ConfigFile string `json:"config_file,omitempty"`
	// StatusFD is the descriptor on which the child reports once how it started.
	StatusFD uintptr `json:"status_fd"`
}

// childStatus is the child's only message, one line of JSON.
type childStatus struct {
	Ready  bool   `json:"ready,omitempty"`
	Locked bool   `json:"locked,omitempty"`
	Error  string `json:"error,omitempty"`
}

// readChildOptions returns nil in a process that Start has not started.
func readChildOptions(getenv func(string) string) (*childOptions, error) {
	if getenv(ChildEnv) != "1" {
		return nil, nil
	}
	c := new(childOptions)
	if err := json.Unmarshal([]byte(getenv(optionsEnv)), c); err != nil {
		return nil, fmt.Errorf("read %s: %w", optionsEnv, err)
	}
	return c, nil
}

// fill completes the options that the child's command line left unset.
func (c *childOptions) fill(o ServerOptions) ServerOptions {
	if c != nil {
		o.Dir = cmp.Or(o.Dir, c.Dir)
		o.Library = cmp.Or(o.Library, c.Library)
		o.MaxMemory = cmp.Or(o.MaxMemory, c.MaxMemory)
		o.configFile = c.ConfigFile
	}
	o.MaxMemory = cmp.Or(o.MaxMemory, defaultMaxMemory)
	return o
}

// report tells the parent how the start went. A missing parent does not matter; a second report
// finds the descriptor closed.
func (c *childOptions) report(status childStatus) {
	if c == nil || c.StatusFD == 0 {
		return
	}
	pipe := os.NewFile(c.StatusFD, "status")
	_ = json.NewEncoder(pipe).Encode(status)
	pipe.Close()
	c.StatusFD = 0
}

const (
	stopPatience = 20 * time.Second
	statusFD     = 3 // the first descriptor after standard error
)

// childEnvironment returns the part of an environment that the engine needs: the places of
// temporary files and of the libraries that its own library needs, the time zone, and the
// language. All other variables are for this process alone: settings, passwords, systemd's
// socket, memory limits.
func childEnvironment(all []string) (needed []string) {
	for _, assignment := range all {
		name, _, _ := strings.Cut(assignment, "=")
		switch name {
		case "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TZ", "LANG":
		default:
			if !strings.HasPrefix(name, "LC_") {
				continue
			}
		}
		needed = append(needed, assignment)
	}
	return needed
}

// spawn starts a child and waits until it answers or has failed.
func spawn(ctx context.Context, command []string, f folder, o childOptions) (*exec.Cmd, error) {
	engineLog, err := openLog(f)
	if err != nil {
		return nil, err
	}
	defer engineLog.Close()
	var from int64
	if info, err := engineLog.Stat(); err == nil {
		from = info.Size()
	}
	o.StatusFD = statusFD
	encoded, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("start engine: %w", err)
	}
	status, childEnd, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start engine: %w", err)
	}
	defer status.Close()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(childEnvironment(os.Environ()), ChildEnv+"=1", optionsEnv+"="+string(encoded))
	cmd.Stdout, cmd.Stderr = engineLog, engineLog
	cmd.ExtraFiles = []*os.File{childEnd}
	// An interrupt typed at the terminal is for the parent, which still needs the engine to store
	// its rows.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	closeOnExec(statusFD)
	err = cmd.Start()
	childEnd.Close()
	if err != nil {
		return nil, fmt.Errorf("start engine process: %w", err)
	}
	answer, err := readStatus(ctx, status)
	if err == nil && answer.Ready {
		return cmd, nil
	}
	reap(cmd, time.Second)
	switch {
	case err != nil:
		return nil, fmt.Errorf("start engine: %w%s", err, quoteLog(f, from))
	case answer.Locked:
		return nil, fmt.Errorf("start engine: %w", errLocked)
	}
	return nil, fmt.Errorf("start engine: %s%s", answer.Error, quoteLog(f, from))
}

func quoteLog(f folder, from int64) string {
	if lines := lastLines(f, from); lines != "" {
		return fmt.Sprintf(" (%s ends with: %s)", f.logFile(), strings.ReplaceAll(lines, "\n", " | "))
	}
	return ""
}

func readStatus(ctx context.Context, pipe *os.File) (*childStatus, error) {
	stop := context.AfterFunc(ctx, func() { _ = pipe.SetReadDeadline(time.Now()) })
	defer stop()
	line, err := bufio.NewReader(io.LimitReader(pipe, maxControlAnswer)).ReadBytes('\n')
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, errors.New("the engine process ended before it answered")
	}
	status := new(childStatus)
	if err := json.Unmarshal(line, status); err != nil {
		return nil, fmt.Errorf("read engine status: %w", err)
	}
	return status, nil
}

// reap waits for a child that is ending, and kills it if it takes too long.
func reap(cmd *exec.Cmd, patience time.Duration) {
	kill := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	_ = cmd.Wait()
}
