package ops

import (
	"github.com/spf13/pflag"
)

// Location is the place where a command runs.
type Location int

// The locations.
const (
	// Here is this machine only: the command needs no state, or creates its own.
	Here Location = iota
	// Anywhere is the service if one is configured, else the state of this machine.
	Anywhere
	// AtService is a service.
	AtService
	// ByState is the state of this machine.
	ByState
)

// Placement describes where a command runs, and why.
type Placement struct {
	At  Location
	Why string
	// Flags change the location, by name or name=value.
	Flags map[string]Location
	// WithArgs is the location with arguments; nil means At.
	WithArgs *Location
}

var (
	here = Here
	// demoFlags is the placement of the flag --demo, which uses the simulated account, whose ledger
	// this machine creates.
	demoFlags = map[string]Location{"demo": Here}
	// accountFlags holds the flags with which a command reads an account with the user's credentials;
	// a service has its own.
	accountFlags = map[string]Location{"regions": ByState, "assume-role": ByState, "profile": ByState}
	// proofFlags holds the flags that prove the user's identity to the state of this machine.
	proofFlags = map[string]Location{"proof": ByState, "proof=auto": Anywhere}
)

const (
	sessionsAtState = "sessions are in the state, and its process keeps them"
	printsHelp      = "it prints its help"
	usersBuckets    = "buckets are the user's"
	usersFolders    = "folders and buckets are the user's"
	plansByFiles    = "it plans by files"
	localPrices     = "it reads the price book of this machine"
	localSessions   = "sessions and their keeper are in the state of this machine"
)

// local holds the commands that no service supports.
var local = map[string]Placement{
	"curfew":      {At: Here, Why: printsHelp},
	"init":        {At: Here, Why: "it writes files here"},
	"policy":      {At: Here, Why: printsHelp},
	"policy init": {At: Here, Why: "it writes files here"},
	"policy check": {
		At: Anywhere, Why: "without files it checks the policies that are in force", WithArgs: &here,
		Flags: map[string]Location{"against": Anywhere},
	},
	"policy test": {At: Here, Why: "it runs cases of files"},
	"policy explain": {
		At: Here, Why: "it reads the account, or a trace, with the user's own credentials, and asks no state",
	},
	"policy tune": {At: Here, Why: "it learns from files"},
	"backtest":    {At: Here, Why: "it replays files"},
	"scan": {At: ByState, Why: "it reads the account with the user's own credentials, and keeps the result",
		Flags: map[string]Location{
			"last": Anywhere, "no-save": Here, "print-iam-policy": Here, "partition": Here, "bill=imported": ByState,
		}},
	"doctor metrics": {At: Here, Why: "it asks metrics servers, and no state"},
	"version":        {At: Here, Why: "it is about this program"},
	"record":         {At: Here, Why: "it writes a trace here"},
	"enforce": {At: ByState, Why: "a pass acts by the ladder of the state; a server makes its own passes",
		Flags: map[string]Location{
			"demo": Here, "cloud=sim": Here, "print-iam-policy": Here, "partition": Here, "bucket": Here,
		}},
	"serve": {At: ByState, Why: "it is the server", Flags: map[string]Location{"demo": Here}},
	"consent": {
		At: ByState, Why: "it writes a tag with the user's own credentials, and records that in the audit log",
	},
	"tag": {
		At:    Here,
		Why:   "it reads the account with the user's own credentials; what it writes goes by the ladder of the state",
		Flags: map[string]Location{"enforce": ByState}},
	"bill":           {At: Here, Why: printsHelp},
	"login":          {At: AtService, Why: "it signs in to a server"},
	"logout":         {At: AtService, Why: "it signs out of a server"},
	"settings clock": {At: ByState, Why: "it is about the file of the state"},
	"state backup":   {At: ByState, Why: "it copies the file of the state"},
	"token":          {At: Here, Why: printsHelp},
	"connect": {
		At: ByState, Why: "it reaches the machine of a session from here, with the credentials of the user",
	},
	"session": {At: Here, Why: printsHelp},
	"session adopt": {
		At:  ByState,
		Why: "it reads the account with the user's own credentials, and sessions are in the state of this machine",
	},
	"session template":   {At: ByState, Why: "it writes a file of what the state of this machine has seen"},
	"ci":                 {At: Here, Why: printsHelp},
	"ci run":             {At: ByState, Why: localSessions},
	"agent":              {At: Here, Why: printsHelp},
	"agent host":         {At: Here, Why: "it is the machine of a session"},
	"agent bootstrap":    {At: Here, Why: "it sets up this machine"},
	"checkpoint":         {At: Here, Why: printsHelp},
	"checkpoint save":    {At: Here, Why: usersFolders},
	"checkpoint restore": {At: Here, Why: usersFolders},
	"checkpoint list":    {At: Here, Why: usersBuckets},
	"checkpoint verify":  {At: Here, Why: usersBuckets},
	"checkpoint gc":      {At: Here, Why: usersBuckets},
	"gateway":            {At: Here, Why: "it serves at this machine"},
	"gateway key":        {At: Here, Why: "it makes a key, and asks no state"},
	"profile":            {At: Here, Why: "it measures a command on this machine"},
	"gateway profile":    {At: Here, Why: "it asks a gateway at its address"},
	"gateway stats":      {At: Here, Why: "it asks a gateway at its address"},
	"plan":               {At: Here, Why: printsHelp},
	"plan account": {
		At: ByState, Why: "it reads the account with the user's own credentials, and the ledger of the state, and keeps the audit",
		Flags: map[string]Location{"demo": Here, "bill=imported": ByState},
	},
	"plan rightsize": {At: Here, Why: "it plans by files, or reads the account with the user's own credentials",
		Flags: map[string]Location{"from=ledger": ByState}},
	"plan mig":    {At: Here, Why: plansByFiles},
	"plan commit": {At: Here, Why: plansByFiles, Flags: map[string]Location{"from=ledger": ByState}},
	"plan capacity": {
		At: Here, Why: "it plans by figures and files", Flags: map[string]Location{"from=ledger": ByState},
	},
	"plan spot":       {At: Here, Why: plansByFiles},
	"plan checkpoint": {At: Here, Why: plansByFiles},
	"plan market":     {At: Here, Why: localPrices},
	"plan tco":        {At: Here, Why: "it plans by figures"},
	"price":           {At: Here, Why: printsHelp},
	"price list":      {At: Here, Why: localPrices},
	"price show":      {At: Here, Why: localPrices},
	"price watching":  {At: Here, Why: "it computes by figures"},
	"price update":    {At: Here, Why: "it writes the price book of this machine"},
}

// Placements returns the location of each command, by its name without the program's.
func Placements() map[string]Placement {
	all := make(map[string]Placement, len(local)+len(endpoints))
	for name, p := range local {
		all[name] = p
	}
	for _, e := range endpoints {
		if o := e.Describe(); o.Command != "" {
			all[o.Command] = Placement{At: Anywhere, Why: o.Why, Flags: o.Flags}
		}
	}
	return all
}

// Locate returns the location of a command with its flags and arguments, and the deciding flag, if
// any. A flag that needs the state of this machine takes precedence.
func (p Placement) Locate(flags *pflag.FlagSet, args []string) (at Location, flag string) {
	at = p.At
	if p.WithArgs != nil && len(args) > 0 {
		at = *p.WithArgs
	}
	flags.Visit(func(f *pflag.Flag) {
		to, ok := p.Flags[f.Name+"="+f.Value.String()]
		if !ok {
			to, ok = p.Flags[f.Name]
		}
		if !ok || f.Value.Type() == "bool" && f.Value.String() == "false" || flag != "" && at == ByState {
			return
		}
		at, flag = to, "--"+f.Name
	})
	return at, flag
}
