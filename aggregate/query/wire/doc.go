// Package wire is the query API's calls as generated from query.proto. It knows the
// messages, and never what they mean.
package wire

//go:generate protoc --plugin=../../../.cache/tools/protoc-gen-go --plugin=../../../.cache/tools/protoc-gen-connect-go --go_out=. --go_opt=paths=source_relative --connect-go_out=. --connect-go_opt=paths=source_relative,package_suffix= query.proto
