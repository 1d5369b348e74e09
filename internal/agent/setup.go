package agent

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/curfew-dev/curfew/internal/wait"
)

// setupStep runs HostConfig.Setup once in the work folder. The command survives the agent; a
// restarted agent waits for it instead of running it twice.
func (b *bootstrap) setupStep(ctx context.Context) (string, error) {
	if b.options.Host.Setup == "" {
		return "the session has none", nil
	}
	s := &script{
		bootstrap: b, name: "setup", text: b.options.Host.Setup, env: b.withSecrets,
		of: func(st *state) *scriptState { return &st.Setup },
	}
	if s.read().PID == 0 {
		if err := s.start(ctx); err != nil {
			return "", err
		}
	}
	endedSilently := false
	for {
		running := s.alive()
		code, ended, err := s.exitStatus() // before its output is read, which is complete then
		if err != nil {
			return "", err
		}
		if err := s.sendOutput(ended || !running); err != nil {
			return "", err
		}
		if ended {
			if code != "0" {
				return "", fmt.Errorf("the command ended with exit code %s", code)
			}
			return "", nil
		}
		if !running {
			if endedSilently {
				// The command or the machine was killed: run it again.
				if err := s.start(ctx); err != nil {
					return "", err
				}
			}
			endedSilently = !endedSilently // it may have written the exit status since
			continue
		}
		if err := wait.For(ctx, 100*time.Millisecond); err != nil {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				_ = syscall.Kill(-s.read().PID, syscall.SIGKILL) // it may have ended
			}
			return "", err
		}
	}
}
