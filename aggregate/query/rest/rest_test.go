package rest_test

import (
	"encoding/json"
	"errors"
	"math"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query/rest"
	"github.com/csigscope/csigscope/aggregate/query/rest/resttest"
	"github.com/csigscope/csigscope/aggregate/query/wire"
)

func TestParse(t *testing.T) {
	at := timestamppb.New(time.Date(2026, 1, 20, 9, 0, 0, 5000, time.UTC))
	half, five := 0.5, uint32(5)
	for query, want := range map[string]proto.Message{
		"": &wire.CellsRequest{Signal: "min_abw_ratio", Level: "location", Windows: proto.Uint32(1), Limit: proto.Uint32(5000)},
		"signal=&limit=5&src=rack1&src=rack2&min_room_ratio=.5": &wire.CellsRequest{
			Signal: "min_abw_ratio", Level: "location", Windows: proto.Uint32(1), Limit: &five, Src: []string{"rack1", "rack2"}, MinRoomRatio: &half,
		},
		"from=2026-01-20T10:00:00.000005%2B01:00&state=clear": &wire.CellsRequest{
			Signal: "min_abw_ratio", Level: "location", Windows: proto.Uint32(1), Limit: proto.Uint32(5000), From: at, State: []wire.State{wire.State_STATE_CLEAR},
		},
		"heartbeat=1m":    &wire.WatchRequest{Signal: "min_abw_ratio", Level: "location", Windows: proto.Uint32(1), Heartbeat: durationpb.New(time.Minute), Encoding: "json"},
		"encoding=frames": &wire.WatchRequest{Signal: "min_abw_ratio", Level: "location", Windows: proto.Uint32(1), Heartbeat: durationpb.New(15 * time.Second), Encoding: "frames"},
		"src=a&dst=b":     &wire.PathRequest{Signal: "min_abw_ratio", Level: "location", Windows: proto.Uint32(10), Src: "a", Dst: "b"},
		"min_heavy=18446744073709551615": &wire.FlowsRequest{
			Signal: "min_abw_ratio", MinHeavy: proto.Uint64(math.MaxUint64), Window: "1s", Limit: proto.Uint32(100),
		},
		"src=%ff": &wire.MatrixRequest{Signal: "min_abw_ratio", Level: "location", Windows: proto.Uint32(1), Src: []string{"\ufffd"}},
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		got := want.ProtoReflect().New().Interface()
		if err := rest.NewSchema().Parse(values, got); err != nil {
			t.Errorf("%q: %v", query, err)
		}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", query, diff)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for query, tt := range map[string]struct {
		request proto.Message
		says    string
	}{
		"form=1":                            {&wire.CellsRequest{}, "form: no such parameter"},
		"limit=0":                           {&wire.CellsRequest{}, "limit: expected a whole number from 1 to 20000, such as 1000"},
		"limit=1.5":                         {&wire.CellsRequest{}, "limit: expected a whole number"},
		"windows=4294967297":                {&wire.CellsRequest{}, "windows: expected a whole number from 1 to 3600"},
		"max_room_ratio=NaN":                {&wire.CellsRequest{}, "max_room_ratio: expected a finite number without a unit from 0 to 1"},
		"max_room_bps=Inf":                  {&wire.CellsRequest{}, "max_room_bps: expected a finite number"},
		"max_room_bps=-1":                   {&wire.CellsRequest{}, "max_room_bps: expected a finite number without a unit of at least 0"},
		"state=fine&signal=a":               {&wire.CellsRequest{}, "state: expected one of congested, brief, clear, too_few, not_judged, no_data"},
		"src=a&src=b&dst=c":                 {&wire.PathRequest{}, "src: is given 2 times: give it once"},
		"src=a":                             {&wire.PathRequest{}, "dst: required"},
		"src=a&src=b":                       {&wire.PathRequest{}, "src: is given 2 times: give it once; dst: required"},
		"from=1969-12-31":                   {&wire.CellsRequest{}, "from: expected a time of RFC 3339"},
		"from=1969-12-31T23:59:59Z":         {&wire.CellsRequest{}, "from: expected a time of RFC 3339 in 1970 to 2105"},
		"heartbeat=61s":                     {&wire.WatchRequest{}, "heartbeat: expected a duration from 1s to 1m0s, such as 10s"},
		"wait=5":                            {&wire.WaitRequest{}, "wait: expected a duration from 0s to 1m0s"},
		"signal=" + strings.Repeat("x", 41): {&wire.CellsRequest{}, "signal: expected at most 40 bytes"},
		strings.Repeat("src=rack1&", 65):    {&wire.CellsRequest{}, "src: expected at most 64 values"},
		"limit=x&min_heavy=-1&window=2s&kind=tag": {&wire.FlowsRequest{}, "limit: expected a whole number from 1 to 10000, such as 1000; min_heavy: expected a whole number, such as 10; window: expected one of 1s, 1m"},
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		var wrong rest.Wrong
		if err := rest.NewSchema().Parse(values, tt.request); !errors.As(err, &wrong) || !strings.HasPrefix(err.Error(), tt.says) {
			t.Errorf("%.60q: %v, want %q", query, err, tt.says)
		}
	}
	far := &wire.CellsRequest{From: &timestamppb.Timestamp{Seconds: 1 << 62}, To: &timestamppb.Timestamp{Nanos: -1}}
	if err := rest.NewSchema().Check(far); err == nil || !strings.Contains(err.Error(), "from: ") || !strings.Contains(err.Error(), "to: ") {
		t.Errorf("times that are none: %v", err)
	}
}

// TestTimes: every time of a window can be asked for, and the end of the last one.
func TestTimes(t *testing.T) {
	for ns, valid := range map[int64]bool{-1: false, 0: true, aggregate.EndOfTime - 1: true, aggregate.EndOfTime: true, aggregate.EndOfTime + 1: false} {
		request := &wire.CellsRequest{To: timestamppb.New(time.Unix(0, ns))}
		if err := rest.NewSchema().Check(request); (err == nil) != valid {
			t.Errorf("%s: %v", request.To.AsTime(), err)
		}
	}
}

// TestOptions: each default and example is valid for its field.
func TestOptions(t *testing.T) {
	s := rest.NewSchema()
	seen := 0
	for i := range wire.File_query_proto.Messages().Len() {
		m := wire.File_query_proto.Messages().Get(i)
		if !strings.HasSuffix(string(m.Name()), "Request") {
			continue
		}
		kind, err := protoregistry.GlobalTypes.FindMessageByName(m.FullName())
		if err != nil {
			t.Fatal(err)
		}
		for n := range m.Fields().Len() {
			f := m.Fields().Get(n)
			o := rest.OptionsOf(f)
			for _, text := range []string{o.Default, o.Example} {
				if text == "" {
					continue
				}
				seen++
				values := url.Values{"src": {"rack1"}, "dst": {"rack2"}}
				for name := range values {
					if m.Fields().ByName(protoreflect.Name(name)) == nil {
						delete(values, name)
					}
				}
				values[string(f.Name())] = []string{text}
				if err := s.Parse(values, kind.New().Interface()); err != nil {
					t.Errorf("%s: %v", m.Name(), err)
				}
			}
			if o.Example == "" || o.Default != "" && f.IsList() || !f.HasPresence() && f.Kind() != protoreflect.StringKind && !f.IsList() {
				t.Errorf("%s.%s: has no example, or nothing to tell that it is not set", m.Name(), f.Name())
			}
		}
	}
	if seen < 100 {
		t.Errorf("%d values", seen)
	}
}

// fill sets all fields of a message to different values.
func fill(m protoreflect.Message, n int) int {
	if t, ok := m.Interface().(*timestamppb.Timestamp); ok {
		t.Seconds, t.Nanos = 1_700_000_000+int64(n), int32(n)
		return n + 1
	}
	fields := m.Descriptor().Fields()
	side := 2
	for i := range fields.Len() {
		f := fields.Get(i)
		if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() && o.Fields().Get(n%o.Fields().Len()) != f {
			continue
		}
		value := func() protoreflect.Value {
			n++
			switch f.Kind() {
			case protoreflect.StringKind:
				return protoreflect.ValueOfString("a<b \u2028" + strings.Repeat("x", n%5))
			case protoreflect.EnumKind:
				return protoreflect.ValueOfEnum(protoreflect.EnumNumber(1 + n%2))
			case protoreflect.BoolKind:
				return protoreflect.ValueOfBool(true)
			case protoreflect.Uint32Kind:
				return protoreflect.ValueOfUint32(uint32(n))
			case protoreflect.Uint64Kind:
				return protoreflect.ValueOfUint64(math.MaxUint64 - uint64(n))
			case protoreflect.DoubleKind:
				return protoreflect.ValueOfFloat64(math.Pow(10, float64(n%50-25)) / 3)
			case protoreflect.BytesKind:
				return protoreflect.ValueOfBytes([]byte{byte(n), 0xff})
			}
			switch inner := m.NewField(f); {
			case f.IsList():
				element := inner.List().NewElement()
				n = fill(element.Message(), n)
				return element
			default:
				n = fill(inner.Message(), n)
				return inner
			}
		}
		if !f.IsList() {
			m.Set(f, value())
			continue
		}
		length := side
		if rest.OptionsOf(f).Rows {
			length = side * side
		}
		list := m.Mutable(f).List()
		for range length {
			list.Append(value())
		}
	}
	return n
}

// TestAppend: the output is valid JSON with all data of the message.
func TestAppend(t *testing.T) {
	s := rest.NewSchema()
	written := 0
	for i := range wire.File_query_proto.Messages().Len() {
		m := wire.File_query_proto.Messages().Get(i)
		if name := string(m.Name()); strings.HasSuffix(name, "Request") || slices.Contains([]string{"Rest", "About", "WatchResponse", "ChangesResponse"}, name) {
			continue
		}
		kind, err := protoregistry.GlobalTypes.FindMessageByName(m.FullName())
		if err != nil {
			t.Fatal(err)
		}
		for n := range 9 {
			want := kind.New().Interface()
			if n < 8 { // and an empty one
				fill(want.ProtoReflect(), n)
			}
			text, err := s.Append(nil, want)
			if err != nil || !json.Valid(text) || strings.ContainsAny(string(text), "<\u2028") {
				t.Fatalf("%s: %v, %s", m.Name(), err, text)
			}
			got := kind.New().Interface()
			if err := resttest.Read(text, got); err != nil {
				t.Fatalf("%s: %v\n%s", m.Name(), err, text)
			}
			for i := range m.Fields().Len() {
				if f := m.Fields().Get(i); n == 8 && rest.OptionsOf(f).Inline {
					got.ProtoReflect().Clear(f)
				}
			}
			if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
				t.Errorf("%s (-want +read):\n%s\n%s", m.Name(), diff, text)
			}
			written++
		}
	}
	if written < 20*9 {
		t.Errorf("%d messages", written)
	}
}

// TestAppendNulls: unknown values are null, and a matrix is a list of rows.
func TestAppendNulls(t *testing.T) {
	s := rest.NewSchema()
	m := &wire.MatrixResponse{
		Groups: []string{"a", "b"}, Mean: []float64{1, math.NaN(), math.Inf(1), 1e21}, HeavyRatio: []float64{0, 1e-7, -0.5, 1},
		Mode: []string{"", "x", "", ""}, State: []wire.State{wire.State_STATE_NO_DATA, wire.State_STATE_CLEAR, wire.State_STATE_CLEAR, wire.State_STATE_CLEAR},
	}
	const want = `{"groups":["a","b"],"mean":[[1,null],[null,1e+21]],"heavy_ratio":[[0,1e-7],[-0.5,1]],"mode":[[null,"x"],[null,null]],"state":[["no_data","clear"],["clear","clear"]]}`
	if got, err := s.Append(nil, m); err != nil || string(got) != want {
		t.Errorf("%v: %s, want %s", err, got, want)
	}
	m.Mean = m.Mean[:3]
	if got, err := s.Append(nil, m); err == nil {
		t.Errorf("a matrix without a corner is %s", got)
	}
}
