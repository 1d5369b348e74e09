module kservebatcher

go 1.26.0

require (
	github.com/kserve/kserve v0.15.2
	go.uber.org/zap v1.27.0
)

require (
	github.com/gofrs/uuid/v5 v5.3.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
)
