package rpc

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/query/rpc/rpctest"
	"github.com/csigscope/csigscope/aggregate/query/wire"
)

// filler sets every field to something of its own.
type filler struct{ n int }

func (f *filler) fill(v reflect.Value) {
	f.n++
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("text %d", f.n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int:
		v.SetInt(int64(f.n))
	case reflect.Uint64:
		v.SetUint(1<<60 + uint64(f.n))
	case reflect.Uint8, reflect.Uint16:
		v.SetUint(uint64(f.n % 250))
	case reflect.Float64:
		v.SetFloat(float64(f.n) / 7)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		f.fill(v.Index(0))
		f.fill(v.Index(1))
	case reflect.Struct:
		switch at := v.Addr().Interface().(type) {
		case *time.Time:
			*at = time.Unix(1_700_000_000+int64(f.n), int64(f.n)*1_000_100).UTC()
			return
		case *model.Measure:
			unit := v.Field(f.n % v.NumField()) // one of them
			unit.Set(reflect.New(unit.Type().Elem()))
			f.fill(unit.Elem())
			return
		}
		for i := range v.NumField() {
			f.fill(v.Field(i))
		}
	case reflect.Interface: // what was asked with, which the asker knows
	default:
		panic(v.Kind())
	}
}

// converted fills a value of the model, and converts it.
func converted[M any, W any, P interface {
	*W
	proto.Message
}](convert func(*M) P) func(*filler) (any, proto.Message) {
	return func(f *filler) (any, proto.Message) {
		m := new(M)
		f.fill(reflect.ValueOf(m).Elem())
		return m, convert(m)
	}
}

func event[M any](name string, inner func(*wire.WatchResponse) proto.Message) func(*filler) (any, proto.Message) {
	return func(f *filler) (any, proto.Message) {
		m := new(M)
		f.fill(reflect.ValueOf(m).Elem())
		return m, inner(watched(name, "7", m))
	}
}

// TestConvert: each field of the model is in the message, under its name.
func TestConvert(t *testing.T) {
	for name, make := range map[string]func(*filler) (any, proto.Message){
		"cells": converted(cells), "matrix": converted(matrix), "path": converted(path), "locations": converted(locations),
		"timeline": converted(timeline), "flows": converted(flows), "findings": converted(findings), "fabric": converted(fabric),
		"health": converted(health), "problem": converted(problem),
		"snapshot":  event[model.Cells](model.EventSnapshot, func(w *wire.WatchResponse) proto.Message { return w.GetSnapshot() }),
		"synced":    event[model.Synced](model.EventSynced, func(w *wire.WatchResponse) proto.Message { return w.GetSynced() }),
		"window":    event[model.WindowEvent](model.EventWindow, func(w *wire.WatchResponse) proto.Message { return w.GetWindow() }),
		"heartbeat": event[model.Heartbeat](model.EventHeartbeat, func(w *wire.WatchResponse) proto.Message { return w.GetHeartbeat() }),
		"gap":       event[model.Gap](model.EventGap, func(w *wire.WatchResponse) proto.Message { return w.GetGap() }),
		"lagging":   event[model.Gap](model.EventLagging, func(w *wire.WatchResponse) proto.Message { return w.GetLagging() }),
	} {
		t.Run(name, func(t *testing.T) {
			for n := range 8 { // so that measures come in all units
				m, message := make(&filler{n})
				answer, err := json.Marshal(m)
				if err != nil {
					t.Fatal(err)
				}
				if diff := rpctest.Diff(answer, message); len(diff) > 0 {
					t.Fatalf("%s\n%s", strings.Join(diff, "\n"), answer)
				}
			}
		})
	}
}

// TestDiffFinds: the comparison is one that can fail.
func TestDiffFinds(t *testing.T) {
	m := &wire.Cell{Src: "rack1", Heavy: 1 << 60, HeavyRatio: 0.5}
	const equal = `{"src":"rack1","dst":"","kind":"","state":"","observations":0,"untouched":0,"trimmed":0,"heavy":1152921504606846976,"heavy_ratio":0.5}`
	if diff := rpctest.Diff([]byte(equal), m); len(diff) > 0 {
		t.Errorf("equal ones differ: %q", diff)
	}
	for from, to := range map[string]string{
		"rack1": "rack2", "846976": "846977", "0.5": "0.25", `"heavy":`: `"heavier":`, `"src":"rack1",`: "", `"trimmed":0`: `"trimmed":1`,
	} {
		altered := strings.Replace(equal, from, to, 1)
		if diff := rpctest.Diff([]byte(altered), m); len(diff) == 0 {
			t.Errorf("%s for %s is not found in %s", to, from, altered)
		}
	}
}

// TestInvalidText: what a capture may hold is told as text.
func TestInvalidText(t *testing.T) {
	m := findings(&model.Findings{Values: []model.Finding{{Kind: "a\xff", Evidence: "b\xfe\x00"}}})
	if _, err := proto.Marshal(m); err != nil || m.Findings[0].Kind != "a\ufffd" {
		t.Errorf("%v, %q", err, m.Findings[0].Kind)
	}
}
