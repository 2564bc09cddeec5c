package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/local/bpf"
)

// dump returns a configuration as config dump prints it.
func dump(t *testing.T, c Config) string {
	t.Helper()
	var out bytes.Buffer
	if err := c.Dump(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func parse(t *testing.T, text string) Config {
	t.Helper()
	c, err := Parse([]byte(text))
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return c
}

// TestDump: a dump equals the configuration, except for its password.
func TestDump(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "windows:\nstore:\n  limits:\n", "csig: {tpids: [], reflections: []}\n", `store:
  dsn: clickhouse://u:s3cret@h:9440/db?secure=true
  limits: {time: 10s, read_rows: 2e9, memory: 1GiB, result_rows: 1000}
  retention: {fine: 90m, 1s: 30d, 1m: 36h}
  max_disk: 50GB
  trim_every: 5m
  outbox: {dir: /var/spool/csigscope, size: 100MB, retention: 0s, interval: 3s}
decode: {udp_tunnels: {8472: vxlan}}
flows: {top: 2000}
findings: {senders: [10.1.2.3/8]}
taps: [{name: a, place: receiver, mirrors: [tzsp, erspan]}]
collect: {taps: [{interface: lo, mirrors: [vxlan], timestamps: software}], mirrors: [{listen: 127.0.0.1, kind: erspan, sessions: {7: {place: mid}}}]}
`} {
		c := parse(t, text)
		printed := dump(t, c)
		if strings.Contains(printed, "s3cret") || strings.Contains(text, "s3cret") != strings.Contains(printed, "# the password is left out") {
			t.Errorf("the dump of a password:\n%s", printed)
		}
		if again := dump(t, parse(t, printed)); again != strings.Replace(printed, " # the password is left out: password_file=FILE names a file with it, CSIGSCOPE_STORE_PASSWORD holds it", "", 1) {
			t.Errorf("a dump of the dump:\n%s\nwant\n%s", again, printed)
		}
	}
	printed := dump(t, parse(t, "decode: {udp_tunnels: {8472: vxlan}}\nflows: {top: 2000}\nfindings: {senders: [10.1.2.3/8]}\n"))
	if none := parse(t, dump(t, parse(t, "csig: {tpids: [], reflections: [], udp_reflections: []}\n"))).CSIG; none.TPIDs == nil || none.Reflections == nil || len(none.TPIDs)+len(none.Reflections) > 0 {
		t.Errorf("the dump of empty lists has %v and %v", none.TPIDs, none.Reflections)
	}
	for text, want := range map[string]csig.Spec{
		"": csig.DefaultSpec(), "csig: {tpids: []}\n": {TPIDs: []csig.TPIDSpec{}, Tables: csig.DefaultSpec().Tables, Reflections: csig.DefaultSpec().Reflections},
		"csig: {shipped: [switch-3bit]}\n": {TPIDs: csig.DefaultSpec().TPIDs, Shipped: []string{"switch-3bit"}, Reflections: csig.DefaultSpec().Reflections},
	} {
		c := parse(t, text)
		printed := dump(t, c)
		if got := parse(t, printed).CSIG; !reflect.DeepEqual(got, c.CSIG) {
			t.Errorf("the dump of %q sets csig to %+v", text, got)
		}
		if got := parse(t, strings.ReplaceAll("\n"+printed, "\n# ", "\n")).CSIG; !reflect.DeepEqual(got, want) {
			t.Errorf("the comments in the dump of %q set csig to %+v, want %+v", text, got, want)
		}
	}
	for _, want := range []string{"udp_tunnels: {8472: vxlan}\n", "flows:\n  top: 2000\n  budget: 8000\n", "findings:\n  detect: true\n  senders: [10.0.0.0/8]\n"} {
		if !strings.Contains(printed, want) {
			t.Errorf("the dump has no %q:\n%s", want, printed)
		}
	}
}

// TestStoreSection: stores are opened with the values of the section.
func TestStoreSection(t *testing.T) {
	t.Parallel()
	c := parse(t, `store:
  dsn: clickhouse://u@h:9440/db?max_execution_time=1s
  limits: {time: 10s, read_rows: 2e9, memory: 1GiB, result_rows: 1000}
  retention: {fine: 90m, 1s: 30d}
  max_disk: 50GB
  outbox: {dir: /box, size: 100MB, retention: 0s, interval: 3s}
`).Store
	if got, want := c.LimitsOf(store.Limits{Time: time.Second}), (store.Limits{Time: time.Second, ReadRows: 2e9, Memory: 1 << 30, ResultRows: 1000}); got != want {
		t.Errorf("limits %+v, want %+v", got, want)
	}
	if got, want := c.Retention.Keep(), (store.Retention{90 * time.Minute, 30 * day, 0}); got != want {
		t.Errorf("retention %v, want %v", got, want)
	}
	if c.MaxDisk != 50e9 || c.TrimEvery != Duration(store.DefaultTrimEvery) {
		t.Errorf("section %+v", c)
	}
	server, err := NewDSN("clickhouse://u@h/db").Target()
	if err != nil {
		t.Fatal(err)
	}
	embedded := store.Target{Kind: store.KindEmbedded, Dir: "/store"}
	plain := defaultOutbox()
	always := func() (string, error) { return "/data", nil }
	for _, test := range []struct {
		box      *Outbox
		target   store.Target
		dir      string
		keep     time.Duration
		interval time.Duration
	}{
		{&c.Outbox, server, "/box/", -1, 3 * time.Second},
		{&c.Outbox, embedded, "/box/", -1, 3 * time.Second},
		{&plain, server, "/data/outbox/", store.DefaultOutboxKeep, store.ServerInterval},
		{&plain, embedded, "/store/outbox", store.DefaultOutboxKeep, store.EmbeddedInterval},
	} {
		o, err := test.box.Options(test.target, always)
		if err != nil || !strings.HasPrefix(o.Dir, test.dir) || o.Keep != test.keep || o.Interval != test.interval {
			t.Errorf("%+v: %+v, %v", test, o, err)
		}
	}
	if o, err := (&Outbox{Dir: NoOutbox}).Options(server, always); o != nil || err != nil {
		t.Errorf("no outbox: %+v, %v", o, err)
	}
}

// TestMistakes: errors name lines and keys, and contain no password.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"store:\n  cluster: a b\n":                             `store: cluster: name cluster "a b": expected letters`,
		"store:\n  dns: none\n":                                `line 2: unknown key "dns": expected one of dsn, `,
		"store:\n  outbox:\n    sise: 1GB\n":                   `line 3: unknown key "sise": expected one of dir, size, retention, interval`,
		"store:\n  retention:\n    2s: 1h\n":                   `line 3: unknown key "2s": expected one of fine, 1s, 1m`,
		"api:\n  limits:\n    many: 1\n    more: 2\n":          `store_time, clients; line 4: unknown key "more"`,
		"export:\n  taps:\n  - {nam: eth0}\n":                  `line 3: unknown key "nam": expected one of interface, name, `,
		"export:\n  collectr: x\n":                             `line 2: unknown key "collectr": expected one of instance, taps, `,
		"a b: 1\n":                                             `line 1: unknown key "a b": expected one of csig, decode, `,
		"store:\n  dsn: [none]\n":                              "line 2: store: dsn: expected none, embedded",
		"store:\n  dsn: postgres://u:s3cret@h\n":               "line 2: store: dsn: ",
		"store:\n  dsn: clickhouse://u:s3cret@h/a-b\n":         `line 2: store: dsn: read store clickhouse://h: database "a-b"`,
		"store:\n  dsn: clickhouse://h?password_file=absent\n": "line 2: store: dsn: read store clickhouse://h: read password_file: open absent",
		"store:\n  max_disk: lots\n":                           `line 2: store: max_disk: "lots": expected a size such as 50GB`,
		"store:\n  max_disk: [1GB]\n":                          `line 2: store: max_disk: is a list, expected a size such as 50GB`,
		"store:\n  dsn: none\n  trim_every: [1s]\n":            `line 3: store: trim_every: is a list, expected a time with a unit, such as`,
		"api:\n  answer_time: 1s\n  anonymous: {role: read}\n": `line 3: api: anonymous: is keys with values, expected one of [read admin none]`,
		"store:\n  trim_every: soon\n":                         `line 2: store: trim_every: "soon": expected a time with a unit, such as`,
		"store:\n  trim_every: 1ms\n":                          "line 2: store: trim_every: 1ms: expected at least 1s",
		"store:\n  limits: {read_rows: -1}\n":                  `line 2: store: limits: read_rows: "-1": expected a whole number`,
		"store:\n  limits: {read_rows: 1.5}\n":                 `line 2: store: limits: read_rows: "1.5": expected a whole number`,
		"store:\n  limits: {time: 0s}\n":                       "line 2: store: limits: time: 0s: expected at least 1ms",
		"store:\n  retention:\n    fine: 59m\n":                "line 3: store: retention: fine: 59m: expected 1h to 18250d",
		"store:\n  retention: {1s: 60000d}\n":                  "line 2: store: retention: 1s: 60000d: expected 1h to 18250d",
		"store:\n  retention: {1s: 3600500ms}\n":               "line 2: store: retention: 1s: 1h0m0.5s: invalid retention: expected whole seconds",
		"store:\n  outbox: {size: 1MB}\n":                      "line 2: store: outbox: size: 1MB: expected at least 64MiB",
		"store:\n  outbox: {retention: 2h}\n":                  "line 2: store: outbox: retention: 2h: expected 0s to 1h",
		"store:\n  outbox: {interval: 11m}\n":                  "line 2: store: outbox: interval: 11m: expected 0s to 10m",
		"store:\n  trim_every: soon\n  max_disk: lots\n":       `expected a time with a unit, such as 500ms, 90s, 6h or 14d; line 3: store: max_disk: "lots"`,

		"decode:\n  udp_tunnels:\n    8472: vxlan\n    8472: geneve\n": "line 4: decode: udp_tunnels: 8472: port 8472 is already defined",
		"decode:\n  udp_tunnels:\n    1: vxlan\n    2: gre\n":          `line 4: decode: udp_tunnels: 2: tunnel "gre": expected one of`,
		"decode:\n  udp_tunnels: {99999: vxlan}\n":                     `port "99999": expected 1 to 65535`,
		"decode:\n  udp_tunnels: {0: vxlan}\n":                         `line 2: decode: udp_tunnels: 0: port "0": expected 1 to 65535`,
		"decode:\n  udp_tunnels: {1: [vxlan]}\n":                       "line 2: decode: udp_tunnels: 1: tunnel",
		"decode:\n  udp_tunnels: [4789]\n":                             "line 2: decode: udp_tunnels: expected a mapping",
		"decode: {udp_tunnels: {4793: vxlan}}\ncsig:\n  udp_reflections:\n  - {ports: [4793], format: compact, profile: ietf01}\n": "udp port 4793: is configured for vxlan and for reflections",

		"flows: {top: -1}":               "line 1: flows: top: -1: expected 0 to 10000",
		"flows: {top: 100000}":           "line 1: flows: top: 100000: expected 0 to 10000",
		"flows:\n  top: 10\n  budget: 5": "line 3: flows: budget: flow budget 5",
		"flows:\n  budget: 0":            "line 2: flows: budget",
		"flows: {tops: 1}":               "tops",

		"findings:\n  senders: [10.0.0.0/8, rack1]": `line 2: findings: senders: "rack1": expected a prefix`,
		"findings: {sender: [10.0.0.0/8]}":          "sender",
		"findings: {detect: perhaps}":               "line 1",

		"windows: {resolutions: [10ms, 100ms, 1s]}": "10ms and 100ms: expected at most one below 1s",

		"api: {anonymous: root}":                        `line 1: api: anonymous: "root": expected one of [read admin none]`,
		"api: {tls: {ca: x}}":                           "need a file of clients",
		"api: {origins: [te.example]}":                  "origins",
		"api: {limits: {concurrent: 99999999999}}":      "line 1: api: limits: concurrent: 99999999999: expected 1 to 1048576",
		"api: {limits: {store_time: 2h}}":               "line 1: api: limits: store_time: 2h: expected 1ms to 1h",
		"api: {limits: {requests: 9e9}}":                "requests",
		"api: {token: x}":                               `unknown key "token"`,
		"api: {limits: {requests: 5, store_time: 10s}}": "",

		"collect: {ingest: {tls: {cert: c, key: k, ca: a}}}":                              "any certificate of this authority could export",
		"collect: {ingest: {tls: {cert: c, key: k, ca: a}, exporters: [{name: \"*\"}]}}":  "",
		"collect: {ingest: {tokens: t, exporters: [{name: rack1-*, rows: 100000}]}}":      "",
		"collect: {ingest: {tokens: t, exporters: [{name: host1, rows: 6553}]}}":          "line 1: collect: ingest: exporters[0]: rows: 6553: expected at least 6554",
		"collect: {ingest: {tokens: t, limits: {bytes: 200KB}}}":                          "line 1: collect: ingest: limits: bytes: 200kB: expected at least 205KiB",
		"collect: {ingest: {tokens: t, exporters: [{rows: 100000}]}}":                     "expected 1 to 256 bytes",
		"collect: {ingest: {tokens: t, exporters: [{name: host1, rate: 100}]}}":           "rate",
		"collect: {ingest: {anonymous: local, exporters: [{name: host1}]}}":               "anonymous: local is not among the exporters",
		"collect: {ingest: {listen: \"127.0.0.1:4319\"}}":                                 "a name for clients without a credential (anonymous)",
		"collect: {ingest: {tokens: t, expect: [host1]}}":                                 "expect",
		"export: {instance: " + strings.Repeat("n", 119) + ", taps: [{interface: eth0}]}": "",
		"export: {instance: " + strings.Repeat("n", 120) + ", taps: [{interface: eth0}]}": `line 1: export: taps[0]: the collector knows it by this name: stream "` + strings.Repeat("n", 64) + `": 129 bytes: expected 1 to 128: change its name or export.instance`,
		"export: {instance: " + strings.Repeat("n", 122) + "}":                            "",
		"export: {instance: " + strings.Repeat("n", 123) + "}":                            "line 1: export: instance: the collector knows taps as INSTANCE/TAP/RING: stream ",

		"export: {instance: a/b}":                                                                                    `line 1: export: instance: "a/b": the collector knows taps as INSTANCE/TAP/RING: expected a name without a slash`,
		"collect: {instance: a/b}":                                                                                   "",
		`export: {instance: "a\u0001"}`:                                                                              `line 1: export: instance: the collector knows taps as INSTANCE/TAP/RING: stream: name "a\x01/x/255": expected printable characters`,
		`export: {taps: [{interface: eth0, name: "a\u0001"}]}`:                                                       `line 1: export: taps[0]: the collector knows it by this name: stream: name "a\x01/255": expected printable characters`,
		"export: {collectors: [\"http://collector.example:4319\"]}":                                                  "expected https",
		"export: {collectors: [\"http://127.0.0.1:4319\", \"https://collector.example\"]}":                           "",
		"export: {collectors: [\"http://127.0.0.1:4319\"], tls: {ca: a}}":                                            "expected https",
		"collect: {ingest: {limits: {rows: 100000, exporters: 7}, exporters: [{name: h, rows: 2e5}]}}":               "",
		"collect: {taps: [{interface: a}, {interface: b, name: a}]}":                                                 `line 1: collect: taps[1]: "a" is there twice`,
		"collect: {mirrors: [{listen: \"127.0.0.1:4789\", kind: vxlan}, {listen: \"127.0.0.1:4789\", kind: tzsp}]}":  "line 1: collect: mirrors[1]: listen: mirrors[0] receives at 127.0.0.1:4789 already",
		"collect: {mirrors: [{listen: \"127.0.0.1:4789\", kind: vxlan}, {listen: \"0.0.0.0:4789\", kind: tzsp}]}":    "mirrors[0] receives at 127.0.0.1:4789 already",
		"collect: {mirrors: [{listen: \"127.0.0.1:4789\", kind: vxlan}, {listen: \"[::]:4789\", kind: vxlan}]}":      "mirrors[0] receives at 127.0.0.1:4789 already",
		"collect: {mirrors: [{listen: \"0.0.0.0:4789\", kind: vxlan}, {listen: \"[::1]:4789\", kind: vxlan}]}":       "",
		"collect: {mirrors: [{listen: \"127.0.0.1:4789\", kind: vxlan}, {listen: \"127.0.0.2:4789\", kind: vxlan}]}": "",
		"collect: {mirrors: [{listen: 127.0.0.1, kind: erspan}, {listen: 127.0.0.1, kind: gretap}]}":                 "",
	} {
		path := writeFile(t, filepath.Join(t.TempDir(), "config.yaml"), text)
		err := checkFile("--config", path)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestCheckCounting: settings under which no kernel can count are refused where ebpf has to.
func TestCheckCounting(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"export: {capture: ebpf, taps: [{interface: a}]}":                                                         "",
		"export: {capture: auto, taps: [{interface: a, unfiltered: true}]}":                                       "",
		"export: {capture: ebpf, taps: [{interface: a}, {interface: b, unfiltered: true}]}":                       `export: capture: ebpf: tap "b": unfiltered: true: `,
		"collect: {capture: ebpf, taps: [{interface: a, direction: both}]}":                                       `collect: capture: ebpf: tap "a": direction: both: `,
		"collect: {capture: ebpf, taps: [{interface: a, timestamps: hardware}]}":                                  "timestamps: hardware: ",
		"collect: {capture: ebpf, taps: [{interface: a, mirrors: [erspan]}]}":                                     "mirrors: of a tap: ",
		"collect: {capture: ebpf, taps: [{interface: a}]}\ntaps: [{name: a, place: receiver, mirrors: [erspan]}]": "mirrors: of a tap: ",
		"decode: {inner_tags: true}\ncollect: {capture: ebpf}\nexport: {capture: ring}":                           "",
		"decode: {inner_tags: true}\ncollect: {capture: ebpf, taps: [{interface: a}]}":                            "decode: inner_tags: ",
		"decode: {endpoints: inner}\ncollect: {capture: ring}\nexport: {capture: ebpf, taps: [{interface: a}]}":   "decode: endpoints: inner: ",
	} {
		n, err := OpenNetwork(writeFile(t, filepath.Join(t.TempDir(), "config.yaml"), text), "")
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if err := n.CheckCounting(TapDefaults{Place: "receiver"}); (err == nil) != (want == "") || err != nil && (!errors.Is(err, bpf.ErrUnsupported) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestNetwork: the epoch depends only on settings that change rows; detection can be switched
// off.
func TestNetwork(t *testing.T) {
	t.Parallel()
	open := func(text string) *Network {
		t.Helper()
		n, err := OpenNetwork(writeFile(t, filepath.Join(t.TempDir(), "config.yaml"), text), "")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	plain := open("")
	cases := map[string]bool{
		"store: {dsn: none, max_disk: 1GB}\ncollect: {instance: me}\nflows: {top: 3}\nfindings: {detect: false}\napi: {anonymous: read}": true,
		"csig: {tables: [{format: compact, signal: max_delay, quantum: 1us, initial: 31, heavy: 3us}]}":                                  false,
		"decode: {udp_tunnels: null}": true,
	}
	values := map[string]string{"endpoints": "inner", "inner_tags": "true", "udp_tunnels": "{8472: vxlan}"}
	for field := range reflect.TypeFor[Decode]().Fields() {
		key, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if values[key] == "" {
			t.Errorf("decode.%s: this test needs a value other than the default", key)
		}
		cases[fmt.Sprintf("decode: {%s: %s}", key, values[key])] = false
	}
	for text, same := range cases {
		if n := open(text); (n.Epoch == plain.Epoch) != same {
			t.Errorf("%s: epoch %016x, without it %016x", text, n.Epoch, plain.Epoch)
		}
	}
	if off := open("findings: {detect: false}"); off.Finding() != nil || plain.Finding() == nil {
		t.Errorf("switched off: %v, by default %v", off.Finding(), plain.Finding())
	}
	if s := plain.Settings(); s.Flows.Budget != 4096 || !slices.Equal(s.Resolutions, []time.Duration{time.Second, time.Minute}) {
		t.Errorf("settings %+v", s)
	}
	placed := open("taps: [{name: a, place: mid, weight: 7}]")
	if a, b := placed.Tap("a", TapDefaults{Place: "sender"}), placed.Tap("b", TapDefaults{Place: "sender"}); a.Place != "mid" || a.Weight != 7 || b.Place != "sender" || b.Weight != 1 {
		t.Errorf("taps %+v, %+v", a, b)
	}
}

// TestContinue: a network with the same epoch knows the names that the earlier one has met, and has
// its own taps. With another epoch or other observation points it knows no earlier names.
func TestContinue(t *testing.T) {
	const topology = "version: 1\ngroups: [{name: a, level: rack, prefixes: [10.1.0.0/16]}]\ndevices: [{name: leaf1, stage: leaf, ports: [{name: up1, orientation: up, speed: 100Gbps}]}]\n"
	open := func(fabricFile, text string) *Network {
		t.Helper()
		dir := t.TempDir()
		n, err := OpenNetwork(writeFile(t, filepath.Join(dir, "config.yaml"), text), writeFile(t, filepath.Join(dir, "fabric.yaml"), fabricFile))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	mid := "taps: [{name: t, place: mid, at: [leaf1]}]\n"
	for name, test := range map[string]struct {
		before, after, config string
		continues             bool
		place                 string
		weight                uint64
	}{
		"the same":             {mid, mid, "", true, "mid", 1},
		"another place":        {"taps: [{name: t, place: mid}]\n", "taps: [{name: t, place: receiver}]\n", "", true, "receiver", 1},
		"another weight":       {"taps: [{name: t, place: receiver}]\n", "taps: [{name: t, place: receiver, weight: 9}]\n", "", true, "receiver", 9},
		"no longer there":      {"taps: [{name: t, place: mid}]\n", "", "", true, "sender", 1},
		"in the configuration": {"taps: [{name: t, place: mid}]\n", "taps: [{name: t, place: mid}]\n", "taps: [{name: t, place: receiver}]", true, "receiver", 1},
		"another point":        {"taps: [{name: t, place: mid}]\n", mid, "", false, "mid", 1},
		"another epoch":        {mid, mid, "decode: {endpoints: inner}", false, "mid", 1},
	} {
		before, after := open(topology+test.before, ""), open(topology+test.after, test.config)
		own := after.Fabric
		after.Continue(before)
		if got := after.Fabric == before.Fabric; got != test.continues || !got && after.Fabric != own {
			t.Errorf("%s: continues: %t, want %t", name, got, test.continues)
		}
		tap := after.Tap("t", TapDefaults{Place: "sender"})
		if tap.Place != test.place || tap.Weight != test.weight || (tap.ObservationPoint != 0) != strings.Contains(test.after, "at:") {
			t.Errorf("%s: tap %+v, want place %s and weight %d", name, tap, test.place, test.weight)
		}
		if planned := len(after.FileTaps); planned != strings.Count(test.after, "name:") {
			t.Errorf("%s: %d taps of the fabric file", name, planned)
		}
	}
}

// TestAPILimits: clients have the limits of the section.
func TestAPILimits(t *testing.T) {
	c := parse(t, `api: {origins: ["https://te.example"], limits: {requests: 5, concurrent: 6, watchers: 7, store_time: 8s, clients: 9}}`)
	want := edge.Settings{Origins: []string{"https://te.example"}, Limits: edge.Limits{Requests: 5, Concurrent: 6, Watchers: 7, StoreTime: 8 * time.Second, Clients: 9}}
	if got := c.API.Settings(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestKeys: each key has a meaning, and config check accepts both ends of the range in the
// reference.
func TestKeys(t *testing.T) {
	t.Parallel()
	ends := 0
	walk(nil, reflect.ValueOf(Default()), true, func(path []string, f reflect.StructField, _ reflect.Value) {
		if f.Tag.Get("help") == "" && !own(f.Type) {
			t.Errorf("%s has no help", strings.Join(path, "."))
		}
		low, high, ok := strings.Cut(f.Tag.Get("range"), "..")
		if !ok {
			return
		}
		for _, end := range []string{low, high} {
			if end == "" {
				continue
			}
			ends++
			besides := map[string]string{
				"collect.taps[]": "interface: lo", "export.taps[]": "interface: lo", "collect.mirrors[]": "listen: 127.0.0.1\nkind: erspan",
				"collect.ingest.exporters[]": "name: host1",
			}
			text, _ := fileWith(strings.Join(path, "."), end, besides)
			if _, err := Parse([]byte(text)); err != nil {
				t.Errorf("%v in\n%s", err, text)
			}
		}
	})
	if ends < 40 {
		t.Errorf("%d ends of ranges, want more", ends)
	}
	var out bytes.Buffer
	if err := WriteReference(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\n| `store.outbox.size` | size, at least 64MiB | 4GiB | largest size of the outbox;",
		"\n| `collect.taps[].place` | receiver, sender, mid | from the section taps,",
		"\n| `collect.mirrors{}.sessions", "\n| `export.collectors` | list of URLs |", "\n| `collect.ingest.peers` | list of names |", "\n| `api.limits.store_time` | duration, 1ms to 1h | 1m |",
	} {
		if want = strings.Replace(want, "mirrors{}", "mirrors[]", 1); !strings.Contains(out.String(), want) {
			t.Errorf("the reference has no %q:\n%s", want, out.String())
		}
	}
}

// TestFlag: a given flag overrides the file, and has the key's default and range.
func TestFlag(t *testing.T) {
	t.Parallel()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	keys := map[string]string{
		"size": "store.outbox.size", "dir": "store.outbox.dir", "name": "export.instance", "url": "export.collectors",
		"every": "export.commit_interval", "listen": "collect.ingest.listen", "cert": "export.tls.cert",
	}
	for name, key := range keys {
		Flag(flags, name, key)
	}
	if got := flags.Lookup("size").DefValue; got != "4GiB" {
		t.Errorf("default %q", got)
	}
	if err := flags.Parse([]string{"--dir", "", "--size=64MiB", "--url=https://a,https://b", "--url=https://c", "--every=20ms", "--listen=:1"}); err != nil {
		t.Fatal(err)
	}
	c := parse(t, "store: {outbox: {size: 1GB, dir: here, retention: 1m}}\nexport: {instance: me, collectors: [\"https://d\"]}")
	c.Override(flags)
	got := []any{c.Store.Outbox.Size, c.Store.Outbox.Dir, c.Store.Outbox.Retention, c.Export.Instance, c.Export.CommitInterval, c.Collect.Ingest.Listen, c.Export.TLS.Cert}
	want := []any{Bytes(64 << 20), "here", Duration(time.Minute), Text("me"), Duration(20 * time.Millisecond), Address(":1"), ""}
	if !slices.Equal(got, want) || !slices.Equal(c.Export.Collectors, []string{"https://a", "https://b", "https://c"}) {
		t.Errorf("%v, %v, want %v", got, c.Export.Collectors, want)
	}
	if fresh := Default(); !reflect.DeepEqual(fresh.Store.Outbox, defaultOutbox()) || fresh.Export.Collectors != nil {
		t.Errorf("flags changed the defaults: %+v", fresh)
	}
	for _, args := range []string{"--size=1MB", "--size=many", "--every=2h", "--every=-1s", "--listen=4319"} {
		if err := flags.Parse([]string{args}); err == nil || !strings.Contains(err.Error(), "expected") {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// TestSettings: a new list of exporters needs no restart, a new store does.
func TestSettings(t *testing.T) {
	t.Parallel()
	settings := func(text string) Settings {
		t.Helper()
		s, err := SettingsOf(map[string]any{"store": parse(t, text).Store})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := settings("store: {max_disk: 1GB, retention: {fine: 2h}}")
	if list := before.Differ(settings("store: {max_disk: 1000MB, retention: {fine: 120m}}")); len(list) > 0 {
		t.Errorf("%v differ", list)
	}
	if list := before.Differ(settings("store: {outbox: {size: 1GB}}")); !slices.Equal(list, []string{"store.max_disk", "store.outbox.size", "store.retention.fine"}) {
		t.Errorf("%v differ", list)
	}
}

func TestBytes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Bytes{
		"50GB": 50e9, "1.5 GiB": 3 << 29, "7": 7, "7B": 7, "2kB": 2000, "1TB": 1e12, "0": 0,
		"": -1, "GB": -1, "-1GB": -1, "1e30TB": -1, "NaN": -1, "5 parsecs": -1,
	} {
		b := Bytes(-1)
		if err := b.Set(text); b != want || (err == nil) != (want >= 0) {
			t.Errorf("%q: %d, %v, want %d", text, b, err, want)
		}
	}
	texts := map[Bytes]string{0: "0", 7: "7", 4096: "4KiB", 64 << 20: "64MiB", 4 << 30: "4GiB", 1 << 40: "1TiB", 50e9: "50GB", 1500: "1500"}
	for b := range maps.Keys(texts) {
		var again Bytes
		if err := again.Set(b.String()); err != nil || again != b || b.String() != texts[b] {
			t.Errorf("%d is %q, want %q: %v", int64(b), b, texts[b], err)
		}
	}
}

func TestDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"14d": "14d", "36h": "36h", "90m": "1h30m", "60s": "1m", "1500ms": "1.5s", "0s": "0s", "24h": "1d", "106751d": "106751d", "1572864h": "65536d"} {
		var d Duration
		if err := d.Set(text); err != nil || d.String() != want {
			t.Errorf("%s is %q, want %q: %v", text, d, want, err)
		}
	}
	for _, text := range []string{"", "soon", "-1s", "5", "1.5d", "106752d", "99999999999999999999d"} {
		if err := new(Duration).Set(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
