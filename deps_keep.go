//go:build deps

package main

import _ "github.com/anishathalye/porcupine"
