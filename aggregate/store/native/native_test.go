package native

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/ch-go/compress"
	chproto "github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/column"
	"github.com/ClickHouse/clickhouse-go/v2/lib/proto"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

func TestMain(m *testing.M) { chdbtest.Main(m) }

// Parts of packets as a server writes them.
func uvarint(n uint64) []byte { return binary.AppendUvarint(nil, n) }

func text(s string) []byte { return append(uvarint(uint64(len(s))), s...) }

func le64(n ...uint64) (b []byte) {
	for _, v := range n {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

func packed(parts ...[]byte) []byte { return slices.Concat(parts...) }

func helloOf(revision uint64) []byte {
	return packed([]byte{proto.ServerHello}, text("ClickHouse"), uvarint(26), uvarint(7), uvarint(revision), text("UTC"), text("fake"), uvarint(1))
}

var hello = helloOf(54479)

var blockInfo = []byte{1, 0, 2, 0xff, 0xff, 0xff, 0xff, 0}

// oneColumn is a block with a column of cells.
func oneColumn(rows uint64, kind string, cells ...byte) []byte {
	return packed(blockInfo, uvarint(1), uvarint(rows), text("c"), text(kind), []byte{0}, cells)
}

// dataPacket is a packet with a compressed block.
func dataPacket(t testing.TB, block []byte) []byte {
	t.Helper()
	w := compress.NewWriter(compress.LevelZero, compress.LZ4)
	if err := w.Compress(block); err != nil {
		t.Fatal(err)
	}
	return packed([]byte{proto.ServerData}, text(""), w.Data)
}

// serveRaw calls answer for each connection to its address, after the client has sent something.
func serveRaw(t testing.TB, answer func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer conn.Close()
				if _, err := conn.Read(make([]byte, 4096)); err != nil {
					return
				}
				answer(conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		open.Wait()
	})
	return listener.Addr().String()
}

// ask sends one query to the server at the address.
func ask(ctx context.Context, t testing.TB, address string) error {
	t.Helper()
	conn, err := clickhouse.Open(Checked(serverOptions(address)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	rows, err := conn.Query(ctx, "SELECT 1")
	if err != nil {
		return err
	}
	for rows.Next() {
	}
	return errors.Join(rows.Err(), rows.Close())
}

func serverOptions(address string) *clickhouse.Options {
	return &clickhouse.Options{
		Addr: []string{address}, Compression: &clickhouse.Compression{Method: clickhouse.CompressionLZ4},
	}
}

// answerWith writes the packets as the server, and reads until the client closes.
func answerWith(packets ...[]byte) func(net.Conn) {
	return func(conn net.Conn) {
		if _, err := conn.Write(slices.Concat(packets...)); err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, conn)
	}
}

const huge = 1 << 40

// hostileAnswers are packets after the hello, none of which may cost more than maxPacket.
func hostileAnswers(t testing.TB) map[string][]byte {
	exception := []byte{proto.ServerException, 1, 0, 0, 0}
	nested := packed(text("n"), text("m"), text("s"), []byte{1, 1, 0, 0, 0})
	bomb := packed(make([]byte, 16), []byte{0x82}, binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, math.MaxUint32), math.MaxUint32))
	prefixed := func(rows uint64, cells ...uint64) []byte {
		return oneColumn(rows, "LowCardinality(String)", le64(cells...)...)
	}
	return map[string][]byte{
		"exception of 2^40 bytes":             packed(exception, uvarint(huge)),
		"exception of 2^63 bytes":             packed(exception, uvarint(1<<63)),
		"message of 2^31 bytes":               packed(exception, text("DB::Exception"), uvarint(1<<31)),
		"exceptions within one another":       packed(exception, bytes.Repeat(nested, 100_000)),
		"table columns of 2^40 bytes":         packed([]byte{proto.ServerTableColumns}, uvarint(huge)),
		"name of a block of 2^40 bytes":       packed([]byte{proto.ServerData}, uvarint(huge)),
		"compressed block of 4 GiB":           packed([]byte{proto.ServerData}, text(""), bomb),
		"log of 2^40 columns":                 packed([]byte{proto.ServerLog}, text(""), blockInfo, uvarint(huge), uvarint(1)),
		"columns":                             dataPacket(t, packed(blockInfo, uvarint(huge), uvarint(1))),
		"a million columns":                   dataPacket(t, packed(blockInfo, uvarint(1_000_000), uvarint(0))),
		"rows of a fixed width":               dataPacket(t, oneColumn(999_999_999, "UInt64")),
		"rows of 16 bytes":                    dataPacket(t, oneColumn(1<<27, "IPv6")),
		"string of 2^40 bytes":                dataPacket(t, oneColumn(1, "String", uvarint(huge)...)),
		"short string before many rows":       dataPacket(t, oneColumn(1<<23, "String", text(strings.Repeat("x", 127))...)),
		"name of a column":                    dataPacket(t, packed(blockInfo, uvarint(1), uvarint(0), uvarint(huge))),
		"array of 2^40 numbers":               dataPacket(t, oneColumn(1, "Array(UInt64)", le64(huge)...)),
		"array that ends before it begins":    dataPacket(t, oneColumn(2, "Array(UInt8)", le64(2, 1)...)),
		"map of 2^40 keys":                    dataPacket(t, oneColumn(1, "Map(String, UInt64)", le64(huge)...)),
		"dictionary of 2^40 entries":          dataPacket(t, prefixed(1, 1, 1<<9, huge)),
		"dictionary without entries":          dataPacket(t, prefixed(1, 1, 1<<9, 0, 1, 0)),
		"key beyond its dictionary":           dataPacket(t, oneColumn(1, "LowCardinality(String)", packed(le64(1, 1<<9, 1), text("a"), le64(1), []byte{7})...)),
		"more keys than rows":                 dataPacket(t, oneColumn(1, "LowCardinality(String)", packed(le64(1, 1<<9, 1), text("a"), le64(huge))...)),
		"type that the library trips over":    dataPacket(t, oneColumn(1, "DateTime64(9,)", le64(1)...)),
		"type of brackets":                    dataPacket(t, oneColumn(1, strings.Repeat("Array(", 600)+"UInt8"+strings.Repeat(")", 600))),
		"type that no question has":           dataPacket(t, oneColumn(1, "JSON", 0)),
		"a serialization of a column's own":   dataPacket(t, packed(blockInfo, uvarint(1), uvarint(0), text("c"), text("UInt8"), []byte{1})),
		"unknown packet":                      {99},
		"a second hello":                      hello,
		"text of another protocol":            []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"compressed block that is not sound":  packed(dataPacket(t, oneColumn(1, "String", text("x")...))[:20], make([]byte, 100)),
		"number of more than 64 bits":         append([]byte{proto.ServerProgress}, bytes.Repeat([]byte{0xff}, 12)...),
		"array in a dictionary":               dataPacket(t, oneColumn(1, "LowCardinality(Array(String))", le64(1)...)),
		"rows that a nullable column needs":   dataPacket(t, oneColumn(1<<28, "Nullable(UInt64)")),
		"log with a string of 2^40 bytes":     packed([]byte{proto.ServerLog}, text(""), oneColumn(1, "String", uvarint(huge)...)),
		"profile events of 2^40 rows":         packed([]byte{proto.ServerProfileEvents}, text(""), oneColumn(huge, "UInt8")),
		"totals with a string of 2^40 bytes":  append([]byte{proto.ServerTotals}, dataPacket(t, oneColumn(1, "String", uvarint(huge)...))[1:]...),
		"block that begins like no other one": dataPacket(t, packed([]byte{9}, blockInfo, uvarint(0), uvarint(0))),
	}
}

// TestHostileServer: every hostile answer ends in an error, without allocating for lengths that
// were only announced.
func TestHostileServer(t *testing.T) {
	cases := hostileAnswers(t)
	check := func(name string, kind error, packets ...[]byte) {
		t.Run(name, func(t *testing.T) {
			address := serveRaw(t, answerWith(packets...))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := ask(t.Context(), t, address)
			runtime.ReadMemStats(&after)
			if e, ok := errors.AsType[*Error](err); !ok || !errors.Is(e, kind) || strings.Contains(e.Error(), "\n") || len(e.Error()) > 300 {
				t.Errorf("%v", err)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
				t.Errorf("%d bytes were allocated", grown)
			}
		})
	}
	for name, packet := range cases {
		check(name, ErrMalformed, hello, packet)
	}
	check("name of 2^40 bytes in the hello", ErrMalformed, []byte{proto.ServerHello}, uvarint(huge))
	check("exception of 2^40 bytes for a hello", ErrMalformed, []byte{proto.ServerException, 1, 0, 0, 0}, uvarint(huge))
	check("another packet for a hello", ErrMalformed, []byte{proto.ServerEndOfStream})
	check("server without a time zone", ErrOldRevision, []byte{proto.ServerHello}, text("old"), uvarint(1), uvarint(1), uvarint(54040))
}

// TestEndlessServer: a server whose answer never ends, or never begins, costs no more than the
// time limit of a query.
func TestEndlessServer(t *testing.T) {
	for name, more := range map[string][]byte{
		"progress": packed([]byte{proto.ServerProgress}, make([]byte, 6)), "blocks": dataPacket(t, packed(blockInfo, uvarint(0), uvarint(0))), "nothing": {},
		"exceptions of one byte after the other": append([]byte{proto.ServerException, 1, 0, 0, 0}, text(strings.Repeat("x", 1000))...),
	} {
		t.Run(name, func(t *testing.T) {
			address := serveRaw(t, func(conn net.Conn) {
				if _, err := conn.Write(hello); err != nil {
					return
				}
				for {
					if len(more) > 500 { // a byte at a time
						if _, err := conn.Write(more[:1]); err != nil {
							return
						}
						more = more[1:]
						_, _ = conn.Read(make([]byte, 1<<16))
						continue
					}
					if len(more) == 0 {
						_, _ = io.Copy(io.Discard, conn)
						return
					}
					if _, err := conn.Write(more); err != nil {
						return
					}
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if ask(ctx, t, address) == nil {
				t.Error("the question has an answer")
			}
		})
	}
}

// TestSoundServer: the answers of a correct server pass, compressed and uncompressed.
func TestSoundServer(t *testing.T) {
	row := packed(blockInfo, uvarint(4), uvarint(2),
		text("s"), text("String"), []byte{0}, text("a"), text(strings.Repeat("b", 300)),
		text("l"), text("LowCardinality(String)"), []byte{0}, le64(1, 1<<9, 2), text(""), text("x"), le64(2), []byte{1, 0},
		text("m"), text("Map(String, UInt64)"), []byte{0}, le64(1, 1), text("k"), le64(7),
		text("n"), text("Nullable(UInt64)"), []byte{0}, []byte{1, 0}, le64(0, 9))
	end := []byte{proto.ServerEndOfStream}
	address := serveRaw(t, answerWith(hello, packed([]byte{proto.ServerProgress}, make([]byte, 6)), dataPacket(t, row), dataPacket(t, row),
		packed([]byte{proto.ServerProfileInfo}, make([]byte, 6)), end))
	conn, err := clickhouse.Open(Checked(serverOptions(address)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	rows, err := conn.Query(t.Context(), "SELECT 1")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; rows.Next(); n++ {
		var s, l string
		var m map[string]uint64
		var o *uint64
		if err := rows.Scan(&s, &l, &m, &o); err != nil {
			t.Fatal(err)
		}
		if first := n%2 == 0; first != (s == "a" && l == "x" && m["k"] == 7 && o == nil) || !first != (len(s) == 300 && l == "" && len(m) == 0 && o != nil && *o == 9) {
			t.Errorf("row %d: %.10s %s %v %v", n, s, l, m, o)
		}
	}
	if err := errors.Join(rows.Close(), rows.Err()); err != nil || n != 4 {
		t.Errorf("%d rows: %v", n, err)
	}
}

// recordedAnswers are answers of the real engine to queries over HTTP.
func recordedAnswers(t testing.TB) [][]byte {
	var list [][]byte
	engine := chdbtest.Start(t).ClickHouseOptions(chdb.RoleReader)
	base, err := engine.TransportFunc(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{
		"SELECT version()", "SELECT 1 WHERE 0", "SELECT number, toString(number) FROM numbers(3)",
		"SELECT toLowCardinality(toString(number % 2)), toNullable(number), map('a', number), [toString(number), 'x'], toIPv6('::1'), toDateTime64(number, 9, 'UTC') FROM numbers(3)",
		"SELECT [['a'], []], CAST('a' AS Enum8('a' = 1, 'b' = 2)), now('UTC'), toFloat64(1), mapFromArrays([toUInt16(1)], [toUInt64(2)])",
	} {
		url := "http://engine" + engine.HttpUrlPath + "?default_format=Native&client_protocol_version=54460"
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(query))
		if err != nil {
			t.Fatal(err)
		}
		response, err := base.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %v: %.200s", query, response.Status, err, body)
		}
		list = append(list, body)
	}
	return list
}

// TestCheckedAnswers: answers of the engine pass unchanged; cut anywhere, or with any byte
// changed, they end in an error or in blocks that the library decodes without harm.
func TestCheckedAnswers(t *testing.T) {
	for _, body := range recordedAnswers(t) {
		pass := func(body []byte) ([]byte, error) {
			c := newChecker(bytes.NewReader(body))
			c.blocks, c.next = &c.wire, c.part
			return io.ReadAll(c)
		}
		got, err := pass(body)
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("%d of %d bytes: %v\n%q", len(got), len(body), err, body)
		}
		for at := range body {
			got, err := pass(body[:at])
			if len(got) > 0 && len(got) < at && !errors.Is(err, io.ErrUnexpectedEOF) || err == nil && len(got) != at {
				t.Errorf("cut at %d: %d bytes, %v", at, len(got), err)
			}
			decodeAnswer(t, packetsOf(body[:at]))
			for _, flip := range []byte{0x01, 0x80, 0xff} {
				changed := bytes.Clone(body)
				changed[at] ^= flip
				decodeAnswer(t, packetsOf(changed))
			}
		}
	}
}

// packetsOf puts a block into a packet.
func packetsOf(block []byte) []byte { return packed([]byte{proto.ServerData}, text(""), block) }

// fuzzLimit is the packet limit for fuzzed answers.
const fuzzLimit = 1 << 20

// decodeAnswer decodes the checked bytes with the library, as the library itself does.
func decodeAnswer(t testing.TB, packets []byte) {
	c := newChecker(bytes.NewReader(packets))
	c.blocks, c.next, c.greeted, c.limit = &c.wire, c.packet, true, fuzzLimit
	reader := chproto.NewReader(c)
	const revision = proto.DBMS_TCP_PROTOCOL_VERSION
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var err error
	n := uint64(0)
	for ; err == nil; n++ {
		var kind byte
		if kind, err = reader.ReadByte(); err != nil {
			break
		}
		switch kind {
		case proto.ServerData, proto.ServerTotals, proto.ServerExtremes, proto.ServerLog, proto.ServerProfileEvents:
			if _, err = reader.Str(); err == nil {
				b := proto.Block{ServerContext: &column.ServerContext{Revision: revision, Timezone: time.UTC}}
				if err = b.Decode(reader, revision); err == nil {
					for _, col := range b.Columns {
						for row := range b.Rows() {
							_ = col.Row(row, false)
						}
					}
				}
			}
		case proto.ServerException:
			err = new(proto.Exception).Decode(reader)
		case proto.ServerProgress:
			err = new(proto.Progress).Decode(reader, revision)
		case proto.ServerProfileInfo:
			err = new(proto.ProfileInfo).Decode(reader, revision)
		case proto.ServerTableColumns:
			err = new(proto.TableColumns).Decode(reader, revision)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > (n+2)*16*fuzzLimit {
		t.Errorf("%d bytes were allocated for %d packets of %d", grown, n, len(packets))
	}
}

// FuzzServerAnswer: the library survives all answers that pass the check, within the memory
// limit.
func FuzzServerAnswer(f *testing.F) {
	for _, packet := range hostileAnswers(f) {
		f.Add(packet)
	}
	f.Add(packetsOf(oneColumn(2, "Array(LowCardinality(String))", packed(le64(1), le64(1, 1), le64(1<<9, 1), text("a"), le64(1), []byte{0})...)))
	f.Fuzz(func(t *testing.T, packets []byte) {
		if len(packets) <= 64<<10 {
			decodeAnswer(t, packets)
		}
	})
}

// BenchmarkChecked decodes a typical block of rows, with and without the check.
func BenchmarkChecked(b *testing.B) {
	const rows = 65_409
	cells := make([]byte, 8*rows)
	for i := range cells {
		cells[i] = byte(i / 8 * 7)
	}
	names := bytes.Repeat(text("leaf3:up1"), rows)
	block := packed(blockInfo, uvarint(5), uvarint(rows))
	for _, name := range []string{"a", "b", "c", "d"} {
		block = packed(block, text(name), text("UInt64"), []byte{0}, cells)
	}
	packet := dataPacket(b, packed(block, text("e"), text("String"), []byte{0}, names))
	for _, check := range []bool{false, true} {
		b.Run(fmt.Sprintf("checked=%t", check), func(b *testing.B) {
			b.SetBytes(int64(len(block)))
			r := &again{packet: packet}
			c := newCheckedConn(nil, true)
			c.answer.wire.in.Reset(r)
			c.answer.greeted = true
			reader := chproto.NewReader(r)
			if check {
				reader = chproto.NewReader(c)
			}
			for b.Loop() {
				if _, err := reader.ReadByte(); err != nil {
					b.Fatal(err)
				}
				if _, err := reader.Str(); err != nil {
					b.Fatal(err)
				}
				reader.EnableCompression()
				decoded := proto.Block{ServerContext: &column.ServerContext{Timezone: time.UTC}}
				if err := decoded.Decode(reader, proto.DBMS_TCP_PROTOCOL_VERSION); err != nil {
					b.Fatal(err)
				}
				reader.DisableCompression()
			}
		})
	}
}

// again reads one packet repeatedly.
type again struct {
	packet []byte
	at     int
}

func (r *again) Read(p []byte) (int, error) {
	n := copy(p, r.packet[r.at:])
	r.at = (r.at + n) % len(r.packet)
	return n, nil
}
