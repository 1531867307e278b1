// Command overbook tries to overbook a reservation server before its users do.
package main

import (
	"os"

	"github.com/overbook/overbook/harness/cli"
	"github.com/overbook/overbook/scenarios"
	"github.com/overbook/overbook/sut"
)

func main() {
	os.Exit(cli.Main(cli.App{Scenarios: scenarios.All(), Sut: sut.Run}, os.Args[1:], os.Stdout, os.Stderr))
}
