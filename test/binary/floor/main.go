// Command floor imports what curfew imports and does nothing: the time that its start takes is
// that of the runtime and of the initializers.
package main

import _ "github.com/curfew-dev/curfew/internal/cli"

func main() {}
