// Package wire is the query API's messages and calls as generated from query.proto. It knows
// the messages, and never what they mean.
package wire

//go:generate protoc --plugin=../../../.cache/tools/protoc-gen-go --plugin=../../../.cache/tools/protoc-gen-connect-go --go_out=. --go_opt=paths=source_relative --connect-go_out=. --connect-go_opt=paths=source_relative,package_suffix= query.proto
//go:generate sh -c "protoc --include_source_info --descriptor_set_out=/dev/stdout query.proto | go run ../rest/openapi > ../rest/openapi.json"

// Number is the value and its unit; ok is false without one.
func (m *Measure) Number() (v float64, unit string, ok bool) {
	switch v := m.GetValue().(type) {
	case *Measure_Bps:
		return v.Bps, "bit/s", true
	case *Measure_Ratio:
		return v.Ratio, "ratio", true
	case *Measure_Ns:
		return v.Ns, "ns", true
	case *Measure_Count:
		return v.Count, "count", true
	}
	return 0, "", false
}
