package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/curfew-dev/curfew/internal/client"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
)

// place is where a command runs.
type place int

// The places.
const (
	// here is this machine alone: it asks no state, or one of its own.
	here place = iota
	// either is the server where one is configured, else the state of this machine.
	either
	// atServer is a server.
	atServer
	// byState is the state of this machine.
	byState
)

// placement is where a command runs, and why. Flags run it elsewhere: by their name, or by
// name=value. With arguments it runs at args, where that is given.
type placement struct {
	at    place
	why   string
	flags map[string]place
	args  *place
}

var (
	// withFiles is where a command runs that is given files.
	withFiles = here
	// demoHere are books of the simulated account, which this machine makes.
	demoHere = map[string]place{"demo": here}
	// ownAccount are the flags by which a command reads an account with the user's own
	// credentials; a service has its own.
	ownAccount = map[string]place{"regions": byState, "assume-role": byState, "profile": byState}
)

// placements says for every command where it runs.
var placements = map[string]placement{
	"curfew":             {at: here, why: "it prints its help"},
	"init":               {at: here, why: "it writes files here"},
	"policy":             {at: here, why: "it prints its help"},
	"policy init":        {at: here, why: "it writes files here"},
	"policy check":       {at: either, why: "without files it checks the policies that are in force", args: &withFiles, flags: map[string]place{"against": either}},
	"policy test":        {at: here, why: "it runs cases of files"},
	"policy explain":     {at: here, why: "it reads the account, or a trace, with the user's own credentials, and asks no state"},
	"policy tune":        {at: here, why: "it learns from files"},
	"backtest":           {at: here, why: "it replays files"},
	"scan":               {at: byState, why: "it reads the account with the user's own credentials, and keeps what it finds", flags: map[string]place{"last": either, "no-save": here, "print-iam-policy": here, "bill=imported": byState}},
	"doctor metrics":     {at: here, why: "it asks metrics servers, and no state"},
	"record":             {at: here, why: "it writes a trace here"},
	"fix":                {at: either, why: "findings are kept in the state, and the ladder is", flags: map[string]place{"regions": byState, "assume-role": byState, "profile": byState, "demo": byState, "cloud": byState, "github": byState, "usage": byState, "metrics-source": byState, "map": byState, "step": byState, "resource": byState}},
	"enforce":            {at: byState, why: "a pass acts by the ladder of the state; a server makes its own passes", flags: map[string]place{"demo": here, "cloud=sim": here, "print-iam-policy": here}},
	"serve":              {at: byState, why: "it is the server", flags: map[string]place{"demo": here}},
	"keep":               {at: either, why: "exemptions are kept in the state", flags: ownAccount},
	"consent":            {at: byState, why: "it writes a tag with the user's own credentials, and records that in the audit log"},
	"tag":                {at: here, why: "it reads the account with the user's own credentials; what it writes goes by the ladder of the state", flags: map[string]place{"enforce": byState}},
	"confirm":            {at: either, why: "fuses are in the state"},
	"freeze":             {at: either, why: "the freeze is in the state"},
	"unfreeze":           {at: either, why: "the freeze is in the state"},
	"costs":              {at: either, why: "the ledger is in the state", flags: demoHere},
	"costs units":        {at: either, why: "the ledger is in the state, and the counts of the configured units are there", flags: map[string]place{"demo": here, "counts": byState, "counts=gpu-hours": either}},
	"costs shares":       {at: either, why: "the ledger is in the state, and the metrics servers that are configured are there", flags: map[string]place{"demo": here, "regions": byState, "assume-role": byState, "profile": byState, "metrics-source": byState, "cloud": byState, "cloud=aws": either}},
	"budget":             {at: either, why: "budgets are those of the state", flags: demoHere},
	"budget holds":       {at: either, why: "reservations are in the state", flags: demoHere},
	"budget settle":      {at: either, why: "reservations are in the state"},
	"budget release":     {at: either, why: "reservations are in the state"},
	"budget extend":      {at: either, why: "reservations are in the state"},
	"bill":               {at: here, why: "it prints its help"},
	"bill import":        {at: either, why: "bills are in the state", flags: map[string]place{"profile": byState}},
	"bill show":          {at: either, why: "bills are in the state", flags: demoHere},
	"bill reconcile":     {at: either, why: "bills and ledger are in the state", flags: demoHere},
	"estimate":           {at: either, why: "prices and past costs are those of the state"},
	"gate":               {at: either, why: "budgets and reservations are in the state", flags: map[string]place{"github": byState, "votes": byState}},
	"gate report":        {at: either, why: "decisions are in the state"},
	"approve":            {at: either, why: "requests are in the state", flags: map[string]place{"proof": byState, "proof=auto": either}},
	"deny":               {at: either, why: "requests are in the state", flags: map[string]place{"proof": byState, "proof=auto": either}},
	"approvals":          {at: either, why: "requests are in the state"},
	"whoami":             {at: either, why: "the server says whom it takes the user for"},
	"login":              {at: atServer, why: "it signs in to a server"},
	"logout":             {at: atServer, why: "it signs out of a server"},
	"settings":           {at: either, why: "the shared settings are in the state"},
	"settings set":       {at: either, why: "the shared settings are in the state"},
	"settings clock":     {at: byState, why: "it is about the file of the state"},
	"token":              {at: here, why: "it prints its help"},
	"token create":       {at: either, why: "tokens are in the state"},
	"token list":         {at: either, why: "tokens are in the state"},
	"token revoke":       {at: either, why: "tokens are in the state"},
	"audit":              {at: either, why: "the audit log is in the state", flags: map[string]place{"anchor": byState, "profile": byState}},
	"up":                 {at: either, why: "sessions are in the state, and whoever has it keeps them"},
	"ls":                 {at: either, why: "sessions are in the state, and whoever has it keeps them"},
	"status":             {at: either, why: "sessions are in the state, and whoever has it keeps them"},
	"logs":               {at: either, why: "sessions are in the state, and whoever has it keeps them"},
	"extend":             {at: either, why: "sessions are in the state, and whoever has it keeps them"},
	"down":               {at: either, why: "sessions are in the state, and whoever has it keeps them"},
	"connect":            {at: byState, why: "it reaches the machine of a session from here, with the credentials of the user"},
	"session":            {at: here, why: "it prints its help"},
	"session adopt":      {at: byState, why: "it reads the account with the user's own credentials, and sessions are in the state of this machine"},
	"session template":   {at: byState, why: "it writes a file of what the state of this machine has seen"},
	"ci":                 {at: here, why: "it prints its help"},
	"ci run":             {at: byState, why: "sessions and their keeper are in the state of this machine"},
	"agent":              {at: here, why: "it prints its help"},
	"agent host":         {at: here, why: "it is the machine of a session"},
	"agent bootstrap":    {at: here, why: "it sets up this machine"},
	"checkpoint":         {at: here, why: "it prints its help"},
	"checkpoint save":    {at: here, why: "folders and buckets are the user's"},
	"checkpoint restore": {at: here, why: "folders and buckets are the user's"},
	"checkpoint list":    {at: here, why: "buckets are the user's"},
	"checkpoint verify":  {at: here, why: "buckets are the user's"},
	"checkpoint gc":      {at: here, why: "buckets are the user's"},
	"plan":               {at: here, why: "it prints its help"},
	"plan rightsize":     {at: here, why: "it plans by files, or reads the account with the user's own credentials", flags: map[string]place{"from=ledger": byState}},
	"plan mig":           {at: here, why: "it plans by files"},
	"plan commit":        {at: here, why: "it plans by files", flags: map[string]place{"from=ledger": byState}},
	"plan capacity":      {at: here, why: "it plans by figures and files", flags: map[string]place{"from=ledger": byState}},
	"plan spot":          {at: here, why: "it plans by files"},
	"plan checkpoint":    {at: here, why: "it plans by files"},
	"plan market":        {at: here, why: "it reads the price book of this machine"},
	"plan tco":           {at: here, why: "it plans by figures"},
	"price":              {at: here, why: "it prints its help"},
	"price list":         {at: here, why: "it reads the price book of this machine"},
	"price show":         {at: here, why: "it reads the price book of this machine"},
	"price watching":     {at: here, why: "it computes by figures"},
	"price update":       {at: here, why: "it writes the price book of this machine"},
}

// of is where a command runs with its flags and arguments, and the flag that decides, if any.
// What needs the state of this machine comes before everything else.
func (p placement) of(c *cobra.Command, args []string) (where place, flag string) {
	where = p.at
	if p.args != nil && len(args) > 0 {
		where = *p.args
	}
	c.Flags().Visit(func(f *pflag.Flag) {
		to, ok := p.flags[f.Name+"="+f.Value.String()]
		if !ok {
			to, ok = p.flags[f.Name]
		}
		if !ok || f.Value.Type() == "bool" && f.Value.String() == "false" || flag != "" && where == byState {
			return
		}
		where, flag = to, "--"+f.Name
	})
	return where, flag
}

// locate settles where a command runs, before it runs.
func (a *app) locate(c *cobra.Command, args []string) error {
	name := strings.TrimPrefix(c.CommandPath(), "curfew ")
	where, flag := placements[name].of(c, args)
	if where == here || where == atServer || a.rt.DataFlag != "" || a.rt.DatabaseFlag != "" {
		return nil
	}
	cfg, err := a.config()
	if err != nil || cfg.Server == "" {
		return err
	}
	if where == byState {
		what := strings.TrimSpace(c.CommandPath() + " " + flag)
		return &failure{exit: ExitUsage, code: "needs_state", err: fmt.Errorf("%s needs a state of this machine, and server is configured (%s): %s", what, cfg.Server, needs(placements[name], flag)),
			hint: "give --data-dir DIR for a state here, or unset server"}
	}
	r, err := a.remote(cfg)
	if err != nil {
		return err
	}
	a.at = r
	return nil
}

// needs says why a command needs the state of this machine.
func needs(p placement, flag string) string {
	if flag != "" && p.at != byState {
		return "the server reads no file and no account for one command"
	}
	if _, saves := p.flags["no-save"]; saves {
		return p.why + ", unless --no-save is given; --last shows the audit of the server"
	}
	return p.why
}

// logins are the tokens that the user keeps.
func (a *app) logins() client.Logins {
	if a.ConfigDir == "" {
		return client.Logins{}
	}
	return client.Logins{Dir: filepath.Join(a.ConfigDir, "curfew", "servers")}
}

// reach is a client of a server of the configuration, with a token or without.
func (a *app) reach(cfg config.Config, server, token string) (*client.Client, error) {
	u, err := config.ServerURL(server)
	if err != nil {
		return nil, usageError("%w", err)
	}
	o := client.Options{URL: u, Token: token, Timeout: cfg.ServerTimeout, Version: a.Version}
	if cfg.ServerCAFile != "" {
		if o.Roots, err = os.ReadFile(a.path(cfg.ServerCAFile)); err != nil {
			return nil, &failure{exit: ExitUsage, code: "invalid_file", err: fmt.Errorf("read server_ca_file %s: %w", cfg.ServerCAFile, daemon.Cause(err))}
		}
	}
	c, err := client.New(o)
	if err != nil {
		return nil, &failure{exit: ExitUsage, code: "invalid_file", err: err, hint: "server_ca_file names a PEM file"}
	}
	return c, nil
}

// remote is the service that is configured, with the token that is kept for it.
func (a *app) remote(cfg config.Config) (*remote, error) {
	u, err := config.ServerURL(cfg.Server)
	if err != nil {
		return nil, usageError("server: %w", err)
	}
	login, err := a.logins().Load(u.String())
	if err != nil && !errors.Is(err, client.ErrNoLogin) {
		return nil, &failure{exit: ExitUsage, code: "no_token", err: err, hint: "`curfew login " + u.String() + "` keeps a new one"}
	}
	c, err := a.reach(cfg, cfg.Server, login.Token)
	if err != nil {
		return nil, err
	}
	return &remote{c: c, rt: a.rt}, nil
}

// unreachedHint is what to do where a server cannot be reached.
func unreachedHint(e *client.Unreached) string {
	if e.Certificate {
		return "server_ca_file in curfew.yaml names the file of the authorities that count"
	}
	return "look whether `curfew serve` runs there; --data-dir DIR takes a state of this machine instead"
}

// serverFailure is the exit code and the hint of what a server answered, or did not; nil for
// another error.
func serverFailure(err error) *failure {
	var said *client.Error
	var silent *client.Unreached
	switch {
	case errors.As(err, &said) && said.Shown:
		return &failure{exit: said.Exit}
	case errors.As(err, &said):
		return &failure{exit: said.Exit, code: said.Code, err: err, hint: said.Hint}
	case errors.As(err, &silent):
		return &failure{exit: ExitError, code: "no_server", err: err, hint: unreachedHint(silent)}
	}
	return nil
}

// asked is an error of a server, with what to do about it here.
func (r *remote) asked(ctx context.Context, err error) error {
	var said *client.Error
	if ctx.Err() == nil && errors.As(err, &said) && said.Code == "unauthenticated" {
		said.Hint = "`curfew login " + r.c.Server() + "` keeps a token for it"
	}
	return err
}
