// Package redis owns the Redis wire: a TCP proxy between the server under test
// and Redis that can be cut, mended and slowed down.
//
// It passes bytes on without reading them. It must not speak the protocol, and
// must not drop or reorder bytes of a connection that stays open.
package redis
