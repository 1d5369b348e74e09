package usage

// Answer is a three-valued truth: what is not known is Unknown, the zero value,
// and only True ever leads to an action.
type Answer int8

// The answers.
const (
	Unknown Answer = iota
	False
	True
)

// Of returns True or False.
func Of(b bool) Answer {
	if b {
		return True
	}
	return False
}

// Not returns the negation; what is unknown stays unknown.
func (a Answer) Not() Answer {
	switch a {
	case True:
		return False
	case False:
		return True
	}
	return Unknown
}

// And is False when any answer is, else Unknown when any is, else True.
func And(answers ...Answer) Answer {
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

// Or is True when any answer is, else Unknown when any is, else False.
func Or(answers ...Answer) Answer {
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
func (a Answer) String() string {
	switch a {
	case True:
		return "true"
	case False:
		return "false"
	}
	return "unknown"
}
