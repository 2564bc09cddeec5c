package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
)

// Host checks the requirements of counting in the kernel on this host: the kernel's version, the capabilities of this process
// and its limits, whether the kernel accepts the program for the settings, and whether it attaches the program to each of the
// interfaces, which it does for a moment. Counting is possible if all results are OK. After a program that the kernel refuses,
// the interfaces are left out.
func Host(settings *window.Settings, interfaces []string) []Requirement {
	list := []Requirement{kernelRequirement(), capabilityRequirement(), memoryRequirement(), btfRequirement()}
	at := window.TapAt("", 1)
	c, err := newCounter(settings, at, 1, 1, nil)
	if err != nil {
		return append(list, Requirement{"program", false, err.Error()})
	}
	list = append(list, Requirement{"program", true, "the verifier takes it"})
	for _, name := range interfaces {
		s := &Source{cfg: Config{Interface: name}}
		l, err := s.attachTo(c.program)
		if err == nil {
			err = l.Close()
		}
		a := Requirement{"interface " + name, err == nil, "the program attaches to TCX ingress"}
		if err != nil {
			a.Text = err.Error()
		}
		list = append(list, a)
	}
	if err := c.close(); err != nil {
		list = append(list, Requirement{"program", false, err.Error()})
	}
	return list
}

// kernelRequirement checks the release: TCX needs 6.6.
func kernelRequirement() Requirement {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Requirement{"kernel", false, err.Error()}
	}
	release := unix.ByteSliceToString(u.Release[:])
	var major, minor int
	_, err := fmt.Sscanf(release, "%d.%d", &major, &minor)
	if err == nil && (major > 6 || major == 6 && minor >= 6) {
		return Requirement{"kernel", true, release + ": TCX came with 6.6"}
	}
	return Requirement{"kernel", false, release + ": TCX needs 6.6"}
}

// capabilityRequirement checks the capabilities of this process. Without CAP_PERFMON the verifier refuses indices
// into arrays that differ between paths of the program.
func capabilityRequirement() Requirement {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return Requirement{"capabilities", false, err.Error()}
	}
	var missing []string
	for _, c := range [...]struct {
		name string
		bit  int
	}{{"CAP_BPF", unix.CAP_BPF}, {"CAP_NET_ADMIN", unix.CAP_NET_ADMIN}, {"CAP_NET_RAW", unix.CAP_NET_RAW}, {"CAP_PERFMON", unix.CAP_PERFMON}} {
		if data[c.bit/32].Effective>>(c.bit%32)&1 == 0 {
			missing = append(missing, c.name)
		}
	}
	if len(missing) > 0 {
		return Requirement{"capabilities", false, strings.Join(missing, ", ") + " missing: " + capture.Remedy("cap_bpf,cap_net_admin,cap_net_raw,cap_perfmon")}
	}
	return Requirement{"capabilities", true, "CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW, CAP_PERFMON"}
}

// explain replaces an error that missing capabilities may cause by one that names them and a remedy: the kernel's errors
// name neither. Without CAP_PERFMON, the verifier returns one of several.
func explain(err error) error {
	if c := capabilityRequirement(); !c.OK && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EFAULT)) {
		return errors.New(c.Text)
	}
	return err
}

// memoryRequirement reports the limit of locked memory. It is always met, because TCX needs a kernel whose maps do not
// count against it (Linux 5.11 and up).
func memoryRequirement() Requirement {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return Requirement{"locked memory", false, err.Error()}
	}
	text := fmt.Sprintf("%d KiB", limit.Cur>>10)
	if limit.Cur == unix.RLIM_INFINITY {
		text = "unlimited"
	}
	return Requirement{"locked memory", true, text + ": maps do not count against it from Linux 5.11 on"}
}

// btfRequirement reports whether the kernel has type information (BTF). It is always met, because the program does not
// need it.
func btfRequirement() Requirement {
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	switch {
	case err == nil:
		return Requirement{"BTF", true, "the kernel has it; it is not needed"}
	case errors.Is(err, fs.ErrNotExist):
		return Requirement{"BTF", true, "the kernel lacks it; it is not needed"}
	}
	return Requirement{"BTF", true, err.Error() + "; it is not needed"}
}
