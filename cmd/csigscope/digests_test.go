package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
)

var (
	updateDigests = flag.Bool("update", false, "write the golden digests again")
	everyDigest   = flag.Bool("every", false, "ask all questions of every scenario, instead of a third of them")
	digestTexts   = flag.String("texts", "", "keep the texts behind the golden digests in this `FOLDER`")
)

// digestsFile has one line for each text: scenario, format, kind, name, the first 8 bytes of
// its SHA-256, and its number of rows, lines, files or questions.
const digestsFile = "testdata/digests.txt"

// cuts keep captures small: just enough of each scenario for congestion, several windows of a
// second, flows and findings.
var cuts = map[string][]string{
	"":                   {"--set", "duration=2500ms", "--set", "packets=150000"},
	"fairness":           {"--set", "packets=30000"}, // these last milliseconds
	"fairness-e2e":       {"--set", "packets=30000"},
	"fairness-swift":     {"--set", "packets=30000"},
	"fairness-swift-e2e": {"--set", "packets=30000"},
	"rogue":              {}, // its faults take turns until the end
	"worst-case":         {"--set", "duration=2500ms", "--set", "packets=10000"},
}

// thorough is the run that queries views and the API with every value of every parameter. The
// other runs that ask query a third of them (picks), each once, and only one of the views that
// differ by resolution: together they cover all signals, levels, resolutions and formats.
const thorough = "quickstart/wide"

// digestKey identifies a text.
type digestKey struct{ scenario, format, kind, name string }

func compareDigestKeys(a, b digestKey) int {
	return cmp.Or(cmp.Compare(a.scenario, b.scenario), cmp.Compare(a.format, b.format), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
}

func (k digestKey) what() string { return k.kind + " " + k.name }
func (k digestKey) run() string  { return k.scenario + "/" + k.format }

// digest is the checksum of a text.
type digest struct {
	sum  string
	rows int
}

// everyRun is the scenario and the format of texts that are the same in all runs.
const everyRun = "all"

// digests collects the digests of a test. It is safe for concurrent use.
type digests struct {
	mu      sync.Mutex
	of      map[digestKey]digest
	skipped map[digestKey]bool // questions that were not asked
	runs    map[string]bool    // completed scenario/format runs
}

func (d *digests) ended(r *digestRun) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runs[r.scenario+"/"+r.format] = true
}

// add adds the digest of a text with the given number of rows; a negative number counts lines.
func (d *digests) add(t *testing.T, key digestKey, text io.WriterTo, rows int) {
	t.Helper()
	sum, lines := sha256.New(), lineCounter(0)
	to := io.MultiWriter(sum, &lines)
	if *digestTexts != "" {
		path := filepath.Join(*digestTexts, key.scenario, key.format, key.kind, strings.Trim(strings.ReplaceAll(key.name, "/", "-"), "-"))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		to = io.MultiWriter(to, f)
	}
	if _, err := text.WriteTo(to); err != nil {
		t.Fatal(err)
	}
	if rows < 0 {
		rows = int(lines)
	}
	found := digest{hex.EncodeToString(sum.Sum(nil)[:8]), rows}
	d.mu.Lock()
	defer d.mu.Unlock()
	if other, twice := d.of[key]; twice && (other != found || key.scenario != everyRun) {
		t.Errorf("%s of %s has two texts", key.what(), key.run())
	}
	d.of[key] = found
}

// lineCounter counts the lines that are written to it.
type lineCounter int

func (n *lineCounter) Write(b []byte) (int, error) {
	*n += lineCounter(bytes.Count(b, []byte("\n")))
	return len(b), nil
}

// TestDigests compares the results of every built-in scenario, in both formats, with golden
// digests: captures and truth of emit, the output of decode, and the rows of every table; in one
// of the formats also the rows of views and the answers to questions of the API: a third of them
// in each scenario, and with -every (make digests) all. An intended change rewrites the digests
// (make digests UPDATE=1), and its commit says which and why.
func TestDigests(t *testing.T) {
	t.Parallel()
	env := shortEngineEnv(t)
	scenarios := scenarioNames(t)
	if testing.Short() {
		scenarios = []string{"figure5"} // quickstart queries every view, which takes a minute
	}
	migratedStore(t, env)
	got := &digests{of: map[digestKey]digest{}, skipped: map[digestKey]bool{}, runs: map[string]bool{}}
	t.Run("scenario", func(t *testing.T) { // ends with the last scenario
		for _, scenario := range scenarios {
			t.Run(scenario, func(t *testing.T) {
				t.Parallel()
				for _, format := range []string{"compact", "wide"} {
					t.Run(format, func(t *testing.T) {
						t.Parallel()
						r := &digestRun{t: t, env: env, dir: t.TempDir(), scenario: scenario, format: format, digests: got}
						r.make()
						got.ended(r)
					})
				}
			})
		}
	})
	if t.Failed() {
		t.Fatal("digests are compared once all of them can be made")
	}
	want := readDigests(t)
	if *updateDigests {
		writeDigests(t, want, got)
		return
	}
	all := maps.Clone(want)
	for k := range want {
		if !got.runs[k.run()] && k.scenario != everyRun || got.skipped[k] {
			delete(want, k)
		}
	}
	if table := differences(want, got.of); table != "" {
		t.Errorf("digests differ from %s:\n\n%s\n%s", digestsFile, table, howToSee)
	}
	if len(got.runs) == 2*len(scenarioNames(t)) {
		checkGuarded(t, all)
	}
}

const howToSee = `To see the rows, keep the texts of both sides and compare them:
  make digests TEXTS=../texts/new               # here; SCENARIO=NAME for one of them
  make digests TEXTS=../texts/old               # in a checkout without the change
  diff -r ../texts/old ../texts/new
If the change is meant: make digests UPDATE=1, and say in the commit which digests changed, and why.`

// scenarioNames returns the list of emit.
func scenarioNames(t *testing.T) (names []string) {
	t.Helper()
	for line := range strings.Lines(mustRun(t, os.Environ(), "emit", "--list")) {
		names = append(names, strings.Fields(line)[0])
	}
	return names
}

func readDigests(t *testing.T) map[digestKey]digest {
	t.Helper()
	text, err := os.ReadFile(digestsFile)
	if err != nil && (!os.IsNotExist(err) || !*updateDigests) {
		t.Fatal(err)
	}
	all := map[digestKey]digest{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 6 {
			t.Fatalf("%s: read %q: expected 6 fields: run make digests UPDATE=1", digestsFile, line)
		}
		rows, err := strconv.Atoi(f[5])
		if err != nil {
			t.Fatalf("%s: %v", digestsFile, err)
		}
		all[digestKey{f[0], f[1], f[2], f[3]}] = digest{f[4], rows}
	}
	return all
}

// writeDigests replaces the digests of completed runs, and drops those of removed scenarios.
func writeDigests(t *testing.T, all map[digestKey]digest, got *digests) {
	t.Helper()
	known := scenarioNames(t)
	for k := range all {
		if k.scenario == everyRun || got.runs[k.run()] || !slices.Contains(known, k.scenario) {
			delete(all, k)
		}
	}
	maps.Copy(all, got.of)
	var b bytes.Buffer
	for _, k := range slices.SortedFunc(maps.Keys(all), compareDigestKeys) {
		fmt.Fprintln(&b, k.scenario, k.format, k.kind, k.name, all[k].sum, all[k].rows)
	}
	if err := os.WriteFile(digestsFile, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// differences returns a table of the digests that differ, one line per text, "" if none do.
func differences(want, got map[digestKey]digest) string {
	where := map[string][]string{}
	runs := map[string]bool{}
	for k := range got {
		if k.scenario != everyRun {
			runs[k.run()] = true
		}
		switch was, known := want[k]; {
		case !known:
			where[k.what()] = append(where[k.what()], k.run()+" (new)")
		case was.rows != got[k].rows:
			where[k.what()] = append(where[k.what()], fmt.Sprintf("%s (%d rows, were %d)", k.run(), got[k].rows, was.rows))
		case was.sum != got[k].sum:
			where[k.what()] = append(where[k.what()], k.run())
		}
	}
	for k := range want {
		if _, there := got[k]; !there {
			where[k.what()] = append(where[k.what()], k.run()+" (gone)")
		}
	}
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, what := range slices.Sorted(maps.Keys(where)) {
		in := where[what]
		slices.Sort(in)
		fmt.Fprintf(w, "%s\t%d of %d\t%s", what, len(in), len(runs), strings.Join(in[:min(len(in), 4)], ", "))
		if len(in) > 4 {
			fmt.Fprint(w, ", ...")
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	return b.String()
}

// checkGuarded: a table or view without rows in every scenario protects nothing.
func checkGuarded(t *testing.T, all map[digestKey]digest) {
	t.Helper()
	rows := map[string]int{}
	for k, d := range all {
		what := k.what()
		// Captures of a few seconds have no steps of seconds: rows at one resolution suffice.
		for _, suffix := range []string{"_1m", "_1s", "_fine", "_either"} {
			what = strings.TrimSuffix(what, suffix)
		}
		rows[what] += d.rows
	}
	for what, n := range rows {
		if n == 0 && what != "table forgotten" { // only a user fills it
			t.Errorf("%s is empty in every scenario", what)
		}
	}
}

// digestRun is one scenario in one format, from captures to answers.
type digestRun struct {
	*digests
	t                *testing.T
	env              []string
	dir              string
	scenario, format string

	clickhouse, page string // addresses
	names            map[string]string
	facts            digestFacts
}

func (r *digestRun) thorough() bool { return r.scenario+"/"+r.format == thorough }

// asks reports whether the run queries views and the API, which takes more time than all the rest:
// each scenario does so in one of the formats. Both have the rows of all tables.
func (r *digestRun) asks() bool {
	h := fnv.New32a()
	fmt.Fprint(h, r.scenario)
	return r.thorough() || (h.Sum32()>>8%2 == 0) == (r.format == "wide")
}

// picks reports whether the run asks a question of a kind: the thorough run asks all of them, the
// others a pseudo-random third, which does not depend on other scenarios.
func (r *digestRun) picks(kind, name string) bool {
	h := fnv.New32a()
	fmt.Fprint(h, r.scenario, kind, name)
	if r.thorough() || *everyDigest || *updateDigests || h.Sum32()>>8%3 == 0 {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skipped[digestKey{r.scenario, r.format, kind, name}] = true
	return false
}

// choose returns the values of a parameter that the run uses: all, or a pseudo-random one,
// which does not depend on other scenarios.
func (r *digestRun) choose(parameter string, values []string) []string {
	if r.thorough() {
		return values
	}
	h := fnv.New32a()
	fmt.Fprint(h, r.scenario, r.format, parameter)
	i := int(h.Sum32()>>8) % len(values)
	return values[i : i+1]
}

func (r *digestRun) add(kind, name string, text []byte, rows int) {
	r.t.Helper()
	r.digests.add(r.t, digestKey{r.scenario, r.format, kind, name}, bytes.NewReader(text), rows)
}

// printed is a command whose output is streamed, since it may be long.
type printed struct{ cmd *exec.Cmd }

func (p printed) WriteTo(w io.Writer) (int64, error) {
	p.cmd.Stdout = w
	var stderr bytes.Buffer
	p.cmd.Stderr = &stderr
	if err := p.cmd.Run(); err != nil {
		return 0, fmt.Errorf("%v: %w: %s", p.cmd.Args, err, stderr.Bytes())
	}
	return 0, nil
}

// run runs the command in the folder of the run, so that no output contains a path.
func (r *digestRun) run(args ...string) printed {
	r.t.Helper()
	path, err := binary()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.CommandContext(r.t.Context(), path, args...)
	cmd.Dir, cmd.Env = r.dir, r.env
	return printed{cmd}
}

// output returns all output of the command.
func (r *digestRun) output(args ...string) []byte {
	r.t.Helper()
	var b bytes.Buffer
	if _, err := r.run(args...).WriteTo(&b); err != nil {
		r.t.Fatal(err)
	}
	return b.Bytes()
}

func (r *digestRun) make() {
	t := r.t
	cut, special := cuts[r.scenario]
	if !special {
		cut = cuts[""]
	}
	layout := []string{"--set", "format=" + r.format, "--set", "profile=" + map[string]string{"wide": "uec050", "compact": "ietf01"}[r.format]}
	r.output(slices.Concat([]string{"emit", "--scenario", r.scenario, "--out", "captures"}, layout, cut)...)
	r.emitted()
	r.digests.add(t, digestKey{r.scenario, r.format, "decode", "ndjson"}, r.run("decode", "captures"), -1)

	// Replay uses the engine of query serve.
	store, address := filepath.Join(r.dir, "store"), freeAddress(t)
	r.page = serveBinary(t, r.env, "query", "serve", "--store", newStore(t, r.env, store), "--listen", "127.0.0.1:0", "--clickhouse-listen", address)
	r.clickhouse = "http://" + address + "/?database=csigscope"
	replay := []string{"replay", "captures", "--fabric", "captures/fabric.yaml", "--store", "embedded:store", "-o", "json", "--fine"}
	if r.scenario == "quickstart" {
		r.output(append(replay, "20ms")...) // superseded by the next one
	}
	summary := r.output(append(replay, "10ms")...)
	r.makeGaps(filepath.Join(store, "engine.sock"))
	r.learn()
	r.add("replay", "summary", indented(t, r.normalised(summary, r.names)), -1)
	r.askTables()
	if r.asks() {
		r.askAPI()
	}
}

// emitted digests the output of emit.
func (r *digestRun) emitted() {
	t := r.t
	entries, err := os.ReadDir(filepath.Join(r.dir, "captures"))
	if err != nil {
		t.Fatal(err)
	}
	var captures bytes.Buffer
	files := 0
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(r.dir, "captures", e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(e.Name(), ".pcap") {
			fmt.Fprintf(&captures, "%s %x\n", e.Name(), sha256.Sum256(content))
			files++
			continue
		}
		r.add("emit", e.Name(), content, -1)
	}
	r.add("emit", "captures", captures.Bytes(), files)
}

func indented(t *testing.T, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
