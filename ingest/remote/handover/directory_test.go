package handover

import (
	"reflect"
	"testing"

	"github.com/csigscope/csigscope/aggregate/store"
)

// TestWireTap: every field of a tap's row survives the way from an exporter, except its
// identity, which the collector assigns.
func TestWireTap(t *testing.T) {
	var row store.TapRow
	v := reflect.ValueOf(&row).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Uint64:
			f.SetUint(uint64(i) + 1)
		case reflect.Int64:
			f.SetInt(int64(i) + 1)
		case reflect.Float64:
			f.SetFloat(float64(i) + 0.5)
		case reflect.String:
			f.SetString(v.Type().Field(i).Name)
		case reflect.Map:
			f.Set(reflect.ValueOf(map[string]uint64{v.Type().Field(i).Name: uint64(i) + 1}))
		case reflect.Struct: // the Source
		default:
			t.Fatalf("field %s: the test knows no %s", v.Type().Field(i).Name, f.Kind())
		}
	}
	if got := tapOfWire(wireTap(&row)); !reflect.DeepEqual(got, row) {
		t.Errorf("got %+v, want %+v", got, row)
	}
}
