package usage

// Tristate is a three-valued truth. Its zero value is Unknown, and only True leads to an action.
type Tristate int8

// The values of Tristate.
const (
	Unknown Tristate = iota
	False
	True
)

// FromBool returns True or False.
func FromBool(b bool) Tristate {
	if b {
		return True
	}
	return False
}

// Not returns the negation; Unknown stays Unknown.
func (a Tristate) Not() Tristate {
	switch a {
	case True:
		return False
	case False:
		return True
	}
	return Unknown
}

// And returns False if any value is False, else Unknown if any is Unknown, else True.
func And(answers ...Tristate) Tristate {
	out := True
	for _, a := range answers {
		switch a {
		case False:
			return False
		case Unknown:
			out = Unknown
		}
	}
	return out
}

// Or returns True if any value is True, else Unknown if any is Unknown, else False.
func Or(answers ...Tristate) Tristate {
	out := False
	for _, a := range answers {
		switch a {
		case True:
			return True
		case Unknown:
			out = Unknown
		}
	}
	return out
}

// String returns "unknown", "false" or "true".
func (a Tristate) String() string {
	switch a {
	case True:
		return "true"
	case False:
		return "false"
	}
	return "unknown"
}
