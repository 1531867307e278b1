package tickets

import "github.com/overbook/overbook/harness"

// races gives the scenarios in which nothing breaks: many want the same.
func races() []harness.Scenario { return nil }
