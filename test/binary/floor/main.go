// Command floor has the imports of curfew but does nothing, so that its start time is that of the
// runtime and of the initializers.
package main

import _ "github.com/curfew-dev/curfew/internal/cli"

func main() {}
