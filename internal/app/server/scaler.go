package server

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/curfew-dev/curfew/internal/app/runtime"
)

// listenScaler serves the external scaler for KEDA until the returned function is called.
func (v *server) listenScaler(ctx context.Context, address string) (end func(), err error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, runtime.Invalid("--scaler-listen %s: %w", address, err)
	}
	streams, stop := context.WithCancel(ctx)
	s := v.fleets.ScalerServer(streams)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			v.log.Error("the external scaler is no longer served", "error", err)
		}
	}()
	v.log.Info("listening for KEDA", "address", l.Addr().String())
	return func() {
		stop()
		_ = s.Close() // streams have ended, and other calls are short
		<-done
	}, nil
}
