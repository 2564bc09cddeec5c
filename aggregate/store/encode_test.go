package store

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/csigscope/csigscope/aggregate"
)

// batchOf is a batch of random rows of one table.
func batchOf(t testing.TB, resolution time.Duration, seed uint64) *batch {
	t.Helper()
	g := traffic{resolution: resolution, windows: 4, groups: 5, locations: 7, signals: allSignals}
	table, err := resolutionTableOf(resolution)
	if err != nil {
		t.Fatal(err)
	}
	b := new(batch)
	b.reset(batchKey{table: table, partition: partition(table, testStart.UnixNano())}, time.Time{})
	for i, block := range blocks(g.rows(rand.New(rand.NewPCG(seed, 1)), aggregate.Source{Producer: 1 << 63, Epoch: seed})) {
		block.Incarnation = uint64(i % 2)
		b.add(block, 0, block.Len())
	}
	return b
}

func compareBatches(t *testing.T, want, got *batch) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(batch{}, batchKey{}), cmpopts.EquateEmpty(),
		cmpopts.IgnoreFields(batch{}, "opened", "text")); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
}

func TestEncodeBatch(t *testing.T) {
	var e encoder
	var got batch
	for _, resolution := range []time.Duration{10 * time.Millisecond, time.Second, time.Minute} {
		want := batchOf(t, resolution, 7)
		record := e.append(nil, want, 0, want.rows())
		if err := e.decode(record, &got); err != nil {
			t.Fatal(err)
		}
		compareBatches(t, want, &got)

		// The same in two pieces.
		half := want.rows() / 3
		both := new(batch)
		*both = *want
		both.reset(want.batchKey, time.Time{})
		total := 0
		for _, record := range [][]byte{e.append(nil, want, 0, half), e.append(nil, want, half, want.rows())} {
			if err := e.decode(record, &got); err != nil {
				t.Fatal(err)
			}
			total += got.rows()
			if at := got.probe(got.rows() - 1); total == want.rows() && at != want.probe(total-1) {
				t.Errorf("last row %+v, want %+v", at, want.probe(total-1))
			}
		}
		if total != want.rows() {
			t.Errorf("%d rows in two pieces, want %d", total, want.rows())
		}
	}
}

// TestDecodeDamaged cuts and changes a record at every byte: decoding fails, or gives a batch
// that can be encoded.
func TestDecodeDamaged(t *testing.T) {
	var e encoder
	b := batchOf(t, time.Second, 3)
	record := e.append(nil, b, 0, 8)
	for at := range record {
		if err := e.decode(record[:at], new(batch)); err == nil {
			t.Fatalf("cut at %d: taken", at)
		}
		flipped := bytes.Clone(record)
		flipped[at] ^= 0xff
		checkDecoded(t, flipped)
	}
	record[0] = batchFormat + 1
	if err := e.decode(record, new(batch)); !errors.Is(err, errNewerBatch) {
		t.Errorf("%v, want errNewerBatch", err)
	}
}

// checkDecoded decodes any bytes, and checks that the result is a valid batch.
func checkDecoded(t *testing.T, record []byte) {
	t.Helper()
	var e encoder
	var b, again batch
	if e.decode(record, &b) != nil {
		return
	}
	n := b.rows()
	if len(b.codesEnd) != n || len(b.words[numColumns64-1]) != n || len(b.bytes8[numColumns8-1]) != n || b.countsEnd[n-1] != len(b.counts) {
		t.Fatalf("%d rows with columns of other lengths", n)
	}
	if err := e.decode(e.append(nil, &b, 0, n), &again); err != nil {
		t.Fatal(err)
	}
	compareBatches(t, &b, &again)
}

func FuzzDecodeBatch(f *testing.F) {
	var e encoder
	for i, resolution := range []time.Duration{10 * time.Millisecond, time.Second} {
		b := batchOf(f, resolution, uint64(i))
		f.Add(e.append(nil, b, 0, 1))
		f.Add(e.append(nil, b, 5, 60))
	}
	f.Fuzz(checkDecoded)
}

// TestCutBatches: a record stays below the bound, however long distributions are.
func TestCutBatches(t *testing.T) {
	block := blockAt(testStart, 400)
	block.DistCode = make([]uint16, 400*20_000)
	block.DistCount = make([]uint64, len(block.DistCode))
	for i := range block.DistCount {
		block.DistCount[i] = 1 << 40 * uint64(i%3)
		block.DistEnd[i/20_000] = uint32(i + 1)
	}
	b := new(batch)
	b.reset(batchKey{table: secondTable}, time.Time{})
	b.add(block, 0, block.Len())
	var e encoder
	pieces := 0
	for from := 0; from < b.rows(); pieces++ {
		to := b.cut(from)
		if n := len(e.append(nil, b, from, to)); n > maxRecordBytes+1<<20 || to <= from {
			t.Fatalf("rows %d to %d take %d bytes", from, to, n)
		}
		from = to
	}
	if pieces != 3 {
		t.Errorf("%d pieces, want 3", pieces)
	}
}

func TestParts(t *testing.T) {
	b := new(batch)
	b.reset(batchKey{table: secondTable}, time.Time{})
	for producer := range uint64(maxParts + 10) {
		block := blockAt(testStart.Add(time.Duration(producer)*time.Second), 2)
		block.Producer = producer + 1
		b.add(block, 0, 2)
		b.add(block, 0, 2)
	}
	parts := b.parts(0, b.rows())
	if len(parts) != maxParts {
		t.Fatalf("%d parts, want %d", len(parts), maxParts)
	}
	start := testStart.UnixNano()
	want := lossExtent{Producer: 1, Resolution: 1e9, From: start, To: start + 1e9, Rows: 4, Observations: 4}
	if parts[0] != want {
		t.Errorf("%+v, want %+v", parts[0], want)
	}
	rest := parts[maxParts-1]
	if rest.Producer != 0 || rest.Rows != 4*11 || rest.To-rest.From != 11e9 {
		t.Errorf("the rest is %+v, want 44 rows of 11 s", rest)
	}
}

// TestDecodeEarlier: a record from a program without samples is decoded, and its rows count as
// unweighted, as the column's default treats stored rows.
func TestDecodeEarlier(t *testing.T) {
	record, err := os.ReadFile("testdata/batch-1.bin")
	if err != nil {
		t.Fatal(err)
	}
	var e encoder
	var got, want batch
	if err := e.decode(record, &got); err != nil {
		t.Fatal(err)
	}
	want.reset(batchKey{table: secondTable, partition: partition(secondTable, testStart.UnixNano())}, time.Time{})
	block := blockOf(earlierRows)
	want.add(block, 0, block.Len())
	compareBatches(t, &want, &got)
	for at := range record {
		if err := e.decode(record[:at], new(batch)); err == nil {
			t.Fatalf("cut at %d: taken", at)
		}
	}
}

// earlierRows are the rows of the record.
var earlierRows = []row{
	{
		resolution: int64(time.Second), window: testStart.UnixNano(), source: aggregate.Source{Producer: 1 << 63, Incarnation: 2, Epoch: 3}, seq: 4,
		signal: 1, kind: 1, src: 10, dst: 11, location: 5, observations: 1200, bytes: 5000, sum: 10000, min: 10, max: 20, trimmed: 200, untouched: 3, heavy: 6, heavySum: 70,
		distCode: []uint16{1, 2}, distCount: []uint64{400, 600},
	},
	{
		resolution: int64(time.Second), window: testStart.UnixNano(), source: aggregate.Source{Producer: 1 << 63, Incarnation: 2, Epoch: 3}, seq: 4,
		signal: 2, kind: 2, src: 12, dst: 13, observations: 2, trimmed: 2,
	},
}
