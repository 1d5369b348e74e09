// Package inference has the messages of the Open Inference Protocol's gRPC service, generated from
// KServe's definition (docs/predict-api/v2/grpc_predict_v2.proto of KServe v0.15.2, Apache
// License 2.0) with protoc 3.21.12 and protoc-gen-go v1.36.12:
//
//	protoc --go_out=. --go_opt=paths=source_relative \
//	  --go_opt=Mgrpc_predict_v2.proto=github.com/curfew-dev/curfew/internal/gateway/inference \
//	  grpc_predict_v2.proto
//
// The calls themselves are made and served on net/http: all of them have one message each way.
package inference
