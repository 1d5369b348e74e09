package local

import (
	"testing"

	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/test/otheruser"
)

// as has a launch run as a Unix user.
func as(u otheruser.User) func(*session.Launch) {
	return func(l *session.Launch) { l.Session.RunAs = u.Name }
}

func TestDebugOtherUser(t *testing.T) {
	one := otheruser.One(t)
	shared := otheruser.Shared(t)
	w := newWorld(t, func(o *ProviderOptions) { o.Sessions = shared })
	l := launch(cpu(1), as(one), func(l *session.Launch) { l.Host.Setup = "id > $HOME/id; sleep 1000" })
	machines := w.start(l)
	w.runs(l)
	w.over(l, idsOf(machines))
}
