// Package rpc serves the query API as calls: Connect, gRPC and gRPC-Web. A call's message
// becomes the parameters of the same question over HTTP, so that what is checked, limited
// and refused is one and the same; its answer is the model's, as a message.
//
// It knows messages and the model. It must never know where answers come from.
package rpc
