package ops

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/money"
)

// AddFlags adds a flag for each field of an input with the tag flag:
//
//	By string `query:"by" enum:"team,project" default:"team" flag:"by" help:"the <dimension>"`
//
// The tag short names a one-letter flag, enum lists the values, and split:"comma" reads a list
// from one value as well. Help is that of the tag help, else of doc; a word in angle brackets
// names the value. The default is that of the operation's FlagDefaults, else of the tag default.
func (o *Operation[I, D]) AddFlags(fs *pflag.FlagSet, in *I) { AddFlags(fs, in, o.FlagDefaults) }

// AddFlags adds the flags of a struct with such tags; defaults override those in the tags.
func AddFlags(fs *pflag.FlagSet, in any, defaults map[string]string) {
	addFlags(fs, reflect.ValueOf(in).Elem(), defaults)
}

func addFlags(fs *pflag.FlagSet, v reflect.Value, defaults map[string]string) {
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		name, ok := field.Tag.Lookup("flag")
		if !ok {
			if field.Type.Kind() == reflect.Struct && field.IsExported() {
				addFlags(fs, value, defaults)
			}
			continue
		}
		standard, ok := defaults[name]
		if !ok {
			standard = field.Tag.Get("default")
		}
		addFlag(fs, field.Tag, name, standard, value.Addr().Interface())
	}
}

func addFlag(fs *pflag.FlagSet, tag reflect.StructTag, name, standard string, to any) {
	short, help := tag.Get("short"), tag.Get("help")
	if help == "" {
		help = tag.Get("doc")
	}
	help = strings.NewReplacer("<", "`", ">", "`").Replace(help)
	switch to := to.(type) {
	case *string:
		if enum := tag.Get("enum"); enum != "" {
			*to = standard
			fs.VarP(NewChoice(name, to, strings.Split(enum, ",")), name, short, help)
			return
		}
		fs.StringVarP(to, name, short, standard, help)
	case *bool:
		fs.BoolVarP(to, name, short, standard == "true", help)
	case *int:
		fs.IntVarP(to, name, short, number(standard), help)
	case *int64:
		fs.Int64VarP(to, name, short, int64(number(standard)), help)
	case *[]string:
		if tag.Get("split") == "comma" {
			fs.StringSliceVarP(to, name, short, nil, help)
			return
		}
		fs.StringArrayVarP(to, name, short, nil, help)
	default:
		panic(fmt.Sprintf("the flag --%s has a field of type %T", name, to))
	}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil && text != "" {
		panic(fmt.Sprintf("the default %q of a flag is no number", text))
	}
	return n
}

// Choice is the value of a flag with a list of values.
type Choice struct {
	flag    string
	to      *string
	allowed []string
}

// NewChoice returns a flag value limited to the allowed ones.
func NewChoice(flag string, to *string, allowed []string) *Choice { return &Choice{flag, to, allowed} }

var _ pflag.Value = (*Choice)(nil)

// Allowed returns the values that the flag takes.
func (c *Choice) Allowed() []string { return c.allowed }

// String implements pflag.Value.
func (c *Choice) String() string {
	if c.to == nil {
		return ""
	}
	return *c.to
}

// Set implements pflag.Value.
func (c *Choice) Set(value string) error {
	if err := OneOf(c.flag, value, c.allowed...); err != nil {
		return err
	}
	*c.to = value
	return nil
}

// Type implements pflag.Value.
func (c *Choice) Type() string { return "string" }

// OneOf checks the value of a flag.
func OneOf(flag, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return usage(fmt.Errorf("--%s %q: it is one of %s%s", flag, value, strings.Join(allowed, ", "),
		document.DidYouMean(value, allowed)))
}

// ParseDollars parses a non-negative amount of dollars.
func ParseDollars(flag, text string) (money.Amount, error) {
	v, err := money.ParseAmount(strings.TrimPrefix(text, "$"))
	if err != nil || v < 0 {
		return 0, usage(fmt.Errorf("--%s %q: it is an amount of dollars such as 38.20", flag, text))
	}
	return v, nil
}

// ParseOptionalDuration parses a positive duration; empty is 0.
func ParseOptionalDuration(flag, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := config.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, usage(fmt.Errorf("--%s %q: it is a duration such as 30m or 4h", flag, text))
	}
	return d, nil
}
