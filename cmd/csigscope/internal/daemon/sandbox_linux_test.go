package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// childEnv makes this test binary a process to restrict.
const childEnv = "CSIGSCOPE_TEST_SANDBOX"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := sandboxed(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var errAllowed = errors.New("was not refused")

// sandboxed restricts this process to dir/own and dir/config, and tries allowed and forbidden
// operations.
func sandboxed(dir string) error {
	at := func(name string) string { return filepath.Join(dir, name) }
	open, err := os.Open(at("secret"))
	if err != nil {
		return err
	}
	defer open.Close()
	systemFiles = append(systemFiles, at("etc/resolv.conf"))
	f := Folders{Read: []string{at("config"), at("missing"), ""}, Write: []string{at("own"), at("absent")}}
	if err := Restrict(f, slog.New(slog.NewTextHandler(os.Stdout, nil))); err != nil {
		return err
	}
	var failed []error
	allow := func(what string, err error) {
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", what, err))
		}
	}
	deny := func(what string, err error) {
		if !errors.Is(err, fs.ErrPermission) {
			failed = append(failed, fmt.Errorf("%s: want no permission: %w", what, errors.Join(err, errAllowed)))
		}
	}
	_, err = open.Read(make([]byte, 1))
	allow("read what was open", err)
	allow("write", os.WriteFile(at("own/file"), nil, 0o600))
	allow("make folders", os.MkdirAll(at("own/a/b"), 0o700))
	allow("move between folders", os.Rename(at("own/file"), at("own/a/b/file")))
	allow("link between folders", os.Link(at("own/a/b/file"), at("own/link")))
	allow("remove", os.RemoveAll(at("own/a")))
	allow("truncate", os.Truncate(at("own/link"), 5))
	allow("/dev/null", os.WriteFile(os.DevNull, []byte("x"), 0o600))
	_, err = os.ReadFile(at("config"))
	allow("read configuration", err)
	_, err = os.ReadFile(at("etc/resolv.conf"))
	allow("read a file of the system that is a link", err)
	allow("run a program", exec.Command("/bin/true").Run())
	_, err = exec.LookPath(os.Args[0])
	allow("find itself", err)

	_, err = os.ReadFile(at("secret"))
	deny("read elsewhere", err)
	_, err = os.ReadDir(dir)
	deny("list elsewhere", err)
	deny("write elsewhere", os.WriteFile(at("new"), nil, 0o600))
	deny("write configuration", os.WriteFile(at("config"), nil, 0o600))
	deny("move out", os.Rename(at("own/link"), at("link")))
	deny("write to the system", os.WriteFile("/etc/csigscope-test", nil, 0o600))
	if out, err := exec.Command("/bin/cat", at("secret")).CombinedOutput(); err == nil || !bytes.Contains(out, []byte("denied")) {
		failed = append(failed, fmt.Errorf("a program that it started reads elsewhere: %s", out))
	}
	return errors.Join(append(failed, onAllThreads(func() error {
		if _, err := os.ReadFile(at("secret")); !errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("another thread reads elsewhere: %w", errors.Join(err, errAllowed))
		}
		return nil
	}))...)
}

// onAllThreads runs f on many threads at once, including those from before Restrict.
func onAllThreads(f func() error) error {
	const threads = 20
	errs := make([]error, threads)
	var ready, done sync.WaitGroup
	ready.Add(threads)
	for i := range threads {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready.Done()
			ready.Wait()
			errs[i] = f()
		})
	}
	done.Wait()
	return errors.Join(errs...)
}

func TestRestrict(t *testing.T) {
	if _, err := ll.LandlockGetABIVersion(); err != nil {
		t.Skipf("SKIPPED: this kernel has no Landlock: %v", err)
	}
	dir := t.TempDir()
	for _, name := range []string{"secret", "config"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"own", "etc", "run"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "run", "resolv.conf"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../run/resolv.conf", filepath.Join(dir, "etc", "resolv.conf")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), errNoSandbox.Error()) {
		t.Skipf("SKIPPED: %s", out)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
