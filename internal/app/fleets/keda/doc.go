// Package keda has the messages of KEDA's external scaler, generated from its definition
// (pkg/scalers/externalscaler/externalscaler.proto of KEDA v2.21.0, Apache License 2.0) with protoc
// 3.21.12 and protoc-gen-go v1.36.12:
//
//	protoc --go_out=. --go_opt=paths=source_relative \
//	  --go_opt='Mexternalscaler.proto=github.com/curfew-dev/curfew/internal/app/fleets/keda;keda' \
//	  externalscaler.proto
//
// The calls themselves are served on net/http.
package keda
