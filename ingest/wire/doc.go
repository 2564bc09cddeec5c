// Package wire is the protocol of ingest, generated from ingest.proto. It knows the messages.
// It must never know what they mean.
package wire

//go:generate protoc --plugin=../../.cache/tools/protoc-gen-go --plugin=../../.cache/tools/protoc-gen-connect-go --go_out=. --go_opt=paths=source_relative --connect-go_out=. --connect-go_opt=paths=source_relative,package_suffix= ingest.proto
