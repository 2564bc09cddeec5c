package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/aggregate/fabric"
)

// checkFile checks a file as config check does.
func checkFile(flag, path string) error {
	if flag == "--fabric" {
		_, err := OpenNetwork("", path)
		return err
	}
	n, err := OpenNetwork(path, "")
	if err != nil {
		return err
	}
	if _, err := n.Config.Store.DSN.Target(); err != nil {
		return fmt.Errorf("check %q: %w", path, err)
	}
	return nil
}

// writeFile writes a file of a test and returns its path.
func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// mistakes maps each key to at least one invalid value. besides holds further lines of the same
// mapping.
type mistakes map[string][]string

// keysOf returns the keys of a type's file: [] is a list element, {} a map element.
func keysOf(at string, t reflect.Type) (keys []string) {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[yaml.Unmarshaler]()) {
		return []string{at}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return keysOf(at, t.Elem())
	case reflect.Slice:
		if below := keysOf(at+"[]", t.Elem()); below[0] != at+"[]" {
			return append(below, at)
		}
	case reflect.Map:
		if below := keysOf(at+"{}", t.Elem()); below[0] != at+"{}" {
			return append(below, at)
		}
	case reflect.Struct:
		for f := range t.Fields() {
			key, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if key == "-" || !f.IsExported() && options == "" {
				continue
			}
			below := strings.TrimPrefix(at+"."+key, ".")
			if strings.Contains(options, "inline") {
				below = at
			}
			keys = append(keys, keysOf(below, f.Type)...)
		}
		return keys
	}
	return []string{at}
}

// fileWith returns a file in which a key has a value, with further lines beside it, and the
// lines of the value and its parents.
func fileWith(key, value string, besides map[string]string) (text string, lines []int) {
	var b strings.Builder
	line := 0
	value, more, _ := strings.Cut(value, "\n")
	write := func(indent int, format string, args ...any) {
		fmt.Fprintf(&b, strings.Repeat("  ", indent)+format+"\n", args...)
		line++
	}
	steps := strings.Split(key, ".")
	for name, v := range besides {
		if !strings.Contains(name, ".") && name != steps[0] && !strings.Contains(name, "[") {
			write(0, "%s: %s", name, v)
		}
	}
	at, indent := "", 0
	for i, step := range steps {
		name := strings.TrimSuffix(strings.TrimSuffix(step, "[]"), "{}")
		at = strings.TrimPrefix(at+"."+step, ".")
		if i == len(steps)-1 {
			write(indent, "%s: %s", name, value)
			lines = append(lines, line)
			if more != "" {
				write(indent, "%s", strings.ReplaceAll(more, "\n", "\n"+strings.Repeat("  ", indent)))
			}
			break
		}
		write(indent, "%s:", name)
		stand := slices.DeleteFunc(strings.Split(besides[at], "\n"), func(l string) bool {
			k, _, _ := strings.Cut(l, ":")
			return k == "" || k == strings.Trim(steps[i+1], "[]{}") || i == len(steps)-2 && strings.Contains("\n"+more, "\n"+k+":")
		})
		indent++
		switch {
		case strings.HasSuffix(step, "[]"):
			write(indent, "-")
			indent++
		case strings.HasSuffix(step, "{}"):
			write(indent, "7:")
			indent++
		}
		lines = append(lines, line, line+1)
		for _, l := range stand {
			write(indent, "%s", l)
		}
	}
	return b.String(), lines
}

var (
	index   = regexp.MustCompile(`\[\]|\{\}`)
	atALine = regexp.MustCompile(`: line (\d+): |^:(\d+): `)
)

func atoi(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// refused checks that each key of a file has mistakes, and that config check refuses them with
// their line and key.
func refused(t *testing.T, flag string, file reflect.Type, all mistakes, besides map[string]string) {
	t.Helper()
	keys := keysOf("", file)
	slices.Sort(keys)
	for key := range all {
		if _, known := slices.BinarySearch(keys, key); !known {
			t.Errorf("%s is no key of the file", key)
		}
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "file.yaml")
	for _, key := range keys {
		if len(all[key]) == 0 {
			t.Errorf("no value of %s is known to be refused", key)
		}
		for _, value := range append(slices.Clone(all[key]), "[[[a]]]") {
			text, lines := fileWith(key, value, besides)
			err := checkFile(flag, writeFile(t, path, text))
			if err == nil {
				t.Errorf("config check says good to\n%s", text)
				continue
			}
			_, message, _ := strings.Cut(err.Error(), path)
			if at := atALine.FindStringSubmatch(message); at == nil || !slices.Contains(lines, atoi(at[1]+at[2])) {
				t.Errorf("%s: %s: want a line of %d: %v", key, value, lines, err)
			}
			steps := strings.Split(index.ReplaceAllString(key, ""), ".")
			named := func(name string) bool { return strings.Contains(message, name) }
			if flag == "--config" && (!slices.ContainsFunc(steps[max(0, len(steps)-2):], named) || strings.Contains(message, "\n")) {
				t.Errorf("%s: %s: want one line with the key: %v", key, value, err)
			}
		}
	}
}

// csigMistakes are mistakes in the section csig, which both files have.
var csigMistakes = mistakes{
	"csig.tpids":                          {"5"},
	"csig.tpids[].tpid":                   {"-1", "0x100", "0x0800", "70000", "many"},
	"csig.tpids[].format":                 {"narrow"},
	"csig.tpids[].profile":                {"ietf02"},
	"csig.shipped":                        {"[nothing]", "5"},
	"csig.tables":                         {"all"},
	"csig.tables[].format":                {"narrow"},
	"csig.tables[].profile":               {"ietf02"},
	"csig.tables[].signal":                {"max_fun", "type_99"},
	"csig.tables[].unit":                  {"furlong\nsignal: type_6\naggregation: min\nquantum: 1ns", "ns"},
	"csig.tables[].aggregation":           {"median\nsignal: type_6\nunit: ns\nquantum: 1ns", "min"},
	"csig.tables[].buckets":               {"[5Gbps, 1Gbps]", "[lots]", "1"},
	"csig.tables[].upper":                 {"10furlongs\nbuckets: [0Gbps]"},
	"csig.tables[].quantum":               {"0Mbps", "-1Mbps", "1parsec"},
	"csig.tables[].base":                  {"far\nstep_bits: 3"},
	"csig.tables[].step_bits":             {"99", "-1"},
	"csig.tables[].step_unit":             {"1parsec\nstep_bits: 3"},
	"csig.tables[].initial":               {"99\nquantum: 1Mbps", "-1"},
	"csig.tables[].mask":                  {"0", "5", "99"},
	"csig.tables[].shift":                 {"40", "-1"},
	"csig.tables[].fixed":                 {"99", "-1"},
	"csig.tables[].heavy":                 {"lots\nquantum: 1Mbps"},
	"csig.tables[].interval":              {"soon\nquantum: 1Mbps"},
	"csig.locators":                       {"5"},
	"csig.locators[].format":              {"narrow"},
	"csig.locators[].profile":             {"ietf02"},
	"csig.locators[].signal":              {"max_fun"},
	"csig.locators[].fields":              {"5"},
	"csig.locators[].fields[].field":      {"colour"},
	"csig.locators[].fields[].bits":       {"0", "99", "300"},
	"csig.locators[].fields[].values":     {"{99: leaf}", "5"},
	"csig.locators[].zero_is_location":    {"maybe"},
	"csig.reflections":                    {"5"},
	"csig.reflections[].kind":             {"2", "300"},
	"csig.reflections[].exid":             {"0x10000", "-1"},
	"csig.reflections[].exid_bits":        {"7", "300"},
	"csig.reflections[].length":           {"long"},
	"csig.reflections[].compact":          {"ietf02"},
	"csig.reflections[].wide":             {"ietf02"},
	"csig.udp_reflections":                {"5"},
	"csig.udp_reflections[].ports":        {"[0]", "[70000]"},
	"csig.udp_reflections[].offset":       {"1025", "-1"},
	"csig.udp_reflections[].format":       {"narrow"},
	"csig.udp_reflections[].profile":      {"ietf02"},
	"csig.udp_reflections[].valid_offset": {"70000"},
	"csig.udp_reflections[].valid_mask":   {"300"},
	"csig.udp_reflections[].match_offset": {"70000"},
	"csig.udp_reflections[].match_mask":   {"300"},
	"csig.udp_reflections[].match_value":  {"300", "3"},
	"csig.udp_reflections[].pds_type":     {"32"},
}

var csigBesides = map[string]string{
	"csig.tpids[]":             "tpid: 0x9901\nformat: compact\nprofile: ietf01",
	"csig.tables[]":            "format: compact\nsignal: min_abw",
	"csig.locators[]":          "format: compact\nfields: [{field: port_id, bits: 7}]",
	"csig.locators[].fields[]": "field: port_id\nbits: 7",
	"csig.reflections[]":       "kind: 253\nexid: 0xc516\nexid_bits: 16",
	"csig.udp_reflections[]":   "ports: [5000]\noffset: 0\nformat: compact\nprofile: ietf01",
}

// TestConfigurationKeys: config check refuses a wrong value of each key of the configuration.
func TestConfigurationKeys(t *testing.T) {
	t.Parallel()
	all := maps.Clone(csigMistakes)
	maps.Copy(all, mistakes{
		"decode.endpoints":    {"middle"},
		"decode.inner_tags":   {"maybe"},
		"decode.udp_tunnels":  {"{99999: vxlan}", "{1: gre}", "5"},
		"windows.resolutions": {"[7ns, 3h]", "[3h]", "[2s]", "[1s, 1500ms]", "[1s, 1s]", "[-1s]", "[10ms]", "[soon]", "1s", "[]", "null", "[null]"},

		"states.onset":             {"0", "1.5", "0.01", "some"},
		"states.clear":             {"0", "-1", "0.5", "some"},
		"windows.fine_heavy_only":  {"maybe"},
		"windows.max_keys":         {"-1", "0", "1.5", "4e9", "many"},
		"windows.locate_untouched": {"maybe"},
		"windows.udp_repeat":       {"-1s", "2m", "often"},
		"memory_limit":             {"0", "-1", "100MiB", "much"},
		"flows.top":                {"-1", "10001", "all", "1.5"},
		"flows.budget":             {"0", "1", "4000000000"},
		"findings.detect":          {"maybe"},
		"findings.senders":         {"[10.0.0.1]", "[10.0.0.0/33]", "all"},
		"taps":                     {"5", "[{name: a, place: mid}, {name: a, place: mid}]"},
		"taps[].name":              {`""`, `"\x01"`, "[a]"},
		"taps[].place":             {"moon", "outside", `""`},
		"taps[].at":                {"5"},
		"taps[].weight":            {"-1", "4000000000"},
		"taps[].mirrors":           {"erspan", "[span]", "5"},

		"store.dsn":                {"postgres://h", `"embedded:"`, `""`, "clickhouse://u@h?dial_timeout=-1s", "clickhouse://u:p@h?password_file=f", "clickhouse://h?cert=f", "clickhouse:///db"},
		"store.limits.time":        {"0s", "-1s", "soon"},
		"store.limits.read_rows":   {"0", "-1", "1.5"},
		"store.limits.memory":      {"0", "much"},
		"store.limits.result_rows": {"0"},
		"store.retention.fine":     {"59m", "3600500ms", "60000d"},
		"store.retention.1s":       {"59m", "0s"},
		"store.retention.1m":       {"59m"},
		"store.cluster":            {"1", `"a b"`},
		"store.max_disk":           {"lots", "-1GB"},
		"store.trim_every":         {"0s", "1ms"},
		"store.outbox.dir":         {"[a]"},
		"store.outbox.size":        {"1MB"},
		"store.outbox.retention":   {"2h", "-1s"},
		"store.outbox.interval":    {"11m", "-1s", "soon"},

		"collect.instance":                        {`""`, strings.Repeat("x", 201)},
		"collect.commit_interval":                 {"1ms", "2h"},
		"collect.lateness":                        {"49ms", "61s"},
		"collect.max_age":                         {"999ms", "61s"},
		"collect.ingest.listen":                   {"4319", "127.0.0.1", "127.0.0.1:99999", `""`},
		"collect.ingest.tls.cert":                 {"only.pem"},
		"collect.ingest.tls.key":                  {"only.pem"},
		"collect.ingest.tls.ca":                   {"only.pem"},
		"collect.ingest.tokens":                   {"[a]"},
		"collect.ingest.anonymous":                {`"\x01"`, "[a]"},
		"collect.ingest.exporters":                {"5", "[host1]"},
		"collect.ingest.exporters[].name":         {`""`, `"\x01"`},
		"collect.ingest.limits.requests":          {"0", "-1"},
		"collect.ingest.limits.bytes":             {"0", "1kB"},
		"collect.ingest.limits.rows":              {"0", "1"},
		"collect.ingest.limits.window_rows":       {"0"},
		"collect.ingest.limits.window_flows":      {"0"},
		"collect.ingest.limits.streams":           {"0"},
		"collect.ingest.limits.exporters":         {"0"},
		"collect.ingest.exporters[].requests":     {"0", "-1"},
		"collect.ingest.exporters[].bytes":        {"0", "1kB"},
		"collect.ingest.exporters[].rows":         {"0", "1"},
		"collect.ingest.exporters[].window_rows":  {"0"},
		"collect.ingest.exporters[].window_flows": {"0"},
		"collect.ingest.exporters[].streams":      {"0"},

		"collect.ingest.peers":     {`["\x01"]`, "[a, a]", "5"},
		"collect.peers.collectors": {"[collector]", "[http://h.example]", "[https://h, https://h]", "5"},
		"collect.peers.tls.cert":   {"only.pem"},
		"collect.peers.tls.key":    {"only.pem"},
		"collect.peers.tls.ca":     {"[a]"},
		"collect.peers.token_file": {"[a]"},

		"collect.mirrors":                     {"5"},
		"collect.mirrors[].listen":            {"nowhere", "127.0.0.1:1"},
		"collect.mirrors[].kind":              {"gre", `""`},
		"collect.mirrors[].name":              {`""`, `"\x01"`},
		"collect.mirrors[].place":             {"moon"},
		"collect.mirrors[].weight":            {"0", "4e9"},
		"collect.mirrors[].buffer":            {"0", "2GiB"},
		"collect.mirrors[].clock":             {"sun"},
		"collect.mirrors[].sessions":          {"{1024: {}}", "{spine/7: {}}", `{"7": {}, "07": {}}`, `{192.0.2.1/7: {}, "::ffff:192.0.2.1/7": {}}`, "5"},
		"collect.mirrors[].sessions{}.place":  {"moon"},
		"collect.mirrors[].sessions{}.weight": {"0", "4e9"},
		"collect.mirrors[].sessions{}.clock":  {"sun"},
		"collect.mirrors[].max_sessions":      {"0", "1025"},

		"export.instance":        {`""`, strings.Repeat("x", 123)},
		"export.collectors":      {"[collector]", "[ftp://h]", "5"},
		"export.tls.cert":        {"only.pem"},
		"export.tls.key":         {"only.pem"},
		"export.tls.ca":          {"[a]"},
		"export.token_file":      {"[a]"},
		"export.spool.dir":       {"[a]"},
		"export.spool.size":      {"0", "1kB"},
		"export.commit_interval": {"1ms", "2h"},
		"export.lateness":        {"49ms", "61s"},

		"api.tls.cert":          {"only.pem"},
		"api.tls.key":           {"only.pem"},
		"api.tls.ca":            {"only.pem"},
		"api.clients":           {"[a]"},
		"api.anonymous":         {"root", "none"},
		"api.origins":           {"[te.example]", "5"},
		"api.limits.requests":   {"0", "9e9"},
		"api.limits.concurrent": {"0", "99999999999"},
		"api.limits.watchers":   {"0", "99999999999"},
		"api.answer_time":       {"0s", "2m"},
		"api.limits.store_time": {"0s", "2h"},
		"api.limits.clients":    {"0", "99999999999"},
	})
	for _, section := range []string{"collect", "export"} {
		maps.Copy(all, mistakes{
			section + ".capture":            {"libpcap"},
			section + ".odd_packets":        {"drop"},
			section + ".taps":               {"5", "[{interface: lo}, {interface: lo}]"},
			section + ".taps[].interface":   {`""`, strings.Repeat("x", 20)},
			section + ".taps[].name":        {`""`, `"\x01"`},
			section + ".taps[].place":       {"moon"},
			section + ".taps[].weight":      {"0", "4e9"},
			section + ".taps[].rings":       {"0", "1000"},
			section + ".taps[].blocks":      {"1", "4e9"},
			section + ".taps[].promiscuous": {"maybe"},
			section + ".taps[].direction":   {"up"},
			section + ".taps[].snap":        {"0"},
			section + ".taps[].timestamps":  {"sun"},
			section + ".taps[].unfiltered":  {"maybe"},
			section + ".taps[].mirrors":     {"erspan", "[span]", "5"},
		})
	}
	besides := maps.Clone(csigBesides)
	maps.Copy(besides, map[string]string{
		"taps[]": "name: a\nplace: mid", "collect.taps[]": "interface: lo", "export.taps[]": "interface: lo",
		"collect.mirrors[]": "listen: 127.0.0.1\nkind: erspan", "collect.ingest": "listen: 127.0.0.1:0\ntokens: file",
		"collect.ingest.exporters[]": "name: host1",
	})
	refused(t, "--config", reflect.TypeFor[Config](), all, besides)
}

// TestFabricKeys does the same for the fabric file.
func TestFabricKeys(t *testing.T) {
	t.Parallel()
	all := maps.Clone(csigMistakes)
	maps.Copy(all, mistakes{
		"version":                       {"2", "one"},
		"name":                          {"[a]"},
		"groups":                        {"5"},
		"groups[].name":                 {`""`, `"\x01"`},
		"groups[].level":                {"shelf"},
		"groups[].parent":               {"nobody"},
		"groups[].prefixes":             {"[10.0.0.1]", "5"},
		"devices":                       {"5"},
		"devices[].name":                {`""`, `"a b"`},
		"devices[].stage":               {`""`, `"a b"`},
		"devices[].id":                  {"-1"},
		"devices[].ports":               {"5"},
		"devices[].ports[].name":        {`""`, `"a b"`},
		"devices[].ports[].id":          {"-1"},
		"devices[].ports[].orientation": {"left"},
		"devices[].ports[].peer":        {"nobody"},
		"devices[].ports[].speed":       {"fast", "0bps"},
		"hosts":                         {"5"},
		"hosts[].name":                  {`""`, `"a b"`},
		"hosts[].addresses":             {"[10.0.0.0/24]", "[]"},
		"taps":                          {"5", "[{name: a, place: mid}, {name: a, place: mid}]"},
		"taps[].name":                   {`""`, `"\x01"`},
		"taps[].place":                  {"moon"},
		"taps[].at":                     {"5", "[spine9]"},
		"taps[].weight":                 {"-1", "4000000000"},
		"taps[].mirrors":                {"erspan", "[span]", "5"},
		"devices[].hash_seed":           {"-1"},
		"paths":                         {"5", "[{src: 10.0.0.1, dst: 10.0.0.2, via: [leaf], from: 2026-01-05T12:00:00Z, until: 2026-01-05T12:00:00Z}]"},
		"paths[].src":                   {"nobody", `""`},
		"paths[].dst":                   {"nobody", `""`},
		"paths[].proto":                 {"-1", "256"},
		"paths[].src_port":              {"-1", "65536"},
		"paths[].dst_port":              {"-1", "65536"},
		"paths[].via":                   {"[]", "[spine9]", "5"},
		"ecmp":                          {"5"},
		"ecmp[].stages":                 {"[moon]", "5"},
		"ecmp[].hash":                   {"md5", `""`},
		"ecmp[].fields":                 {"[color]", "[src_ip, src_ip]"},
	})
	besides := maps.Clone(csigBesides)
	maps.Copy(besides, map[string]string{
		"version": "1", "groups[]": "name: g\nlevel: rack", "devices[]": "name: leaf\nstage: leaf\nports: []",
		"devices[].ports[]": "name: up1\norientation: up\nspeed: 1Gbps", "hosts[]": "name: h\naddresses: [10.0.0.1]", "taps[]": "name: a\nplace: mid",
		"paths[]": "src: 10.0.0.1\ndst: 10.0.0.2\nvia: [leaf]", "ecmp[]": "hash: crc32",
	})
	refused(t, "--fabric", reflect.TypeFor[fabric.Spec](), all, besides)
}
