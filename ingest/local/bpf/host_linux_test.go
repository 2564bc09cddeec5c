package bpf_test

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/local/bpf"
)

// TestCapabilities: the capabilities that the documentation names are enough. Without some of them the program names
// these and a remedy, in place of the kernel's hint about locked memory or the verifier's log.
func TestCapabilities(t *testing.T) {
	s, err := bpf.New(bpf.Config{Interface: "lo"})
	if err != nil {
		t.Fatal(err)
	}
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	settings := window.Settings{Decode: decode.Config{Domain: domain}, Resolver: fabric.None(domain), Resolutions: []time.Duration{time.Second}}
	whole := s.Try(&settings, window.TapAt("", 1), true)
	const remedy = ` missing: run as root, or sudo setcap cap_bpf,cap_net_admin,cap_net_raw,cap_perfmon+ep "$(command -v csigscope)"`
	for _, tc := range []struct {
		name string
		has  []int
		want string // missing
	}{
		{"none", nil, "CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW, CAP_PERFMON"},
		{"without CAP_PERFMON", []int{unix.CAP_BPF, unix.CAP_NET_ADMIN, unix.CAP_NET_RAW}, "CAP_PERFMON"},
		{"all", []int{unix.CAP_BPF, unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_PERFMON}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if whole != nil && tc.has != nil {
				t.Skipf("SKIPPED: needs root: %v", whole)
			}
			failed := make(chan error)
			go func() {
				runtime.LockOSThread() // the thread ends with the goroutine
				header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
				var data [2]unix.CapUserData
				for _, c := range tc.has {
					data[c/32].Effective |= 1 << (c % 32)
					data[c/32].Permitted |= 1 << (c % 32)
				}
				if err := unix.Capset(&header, &data[0]); err != nil {
					failed <- err
					return
				}
				failed <- s.Try(&settings, window.TapAt("", 1), true)
			}()
			err := <-failed
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || err.Error() != `count on "lo": `+tc.want+remedy) {
				t.Errorf("%v, want %q to be missing", err, tc.want)
			}
		})
	}
}
