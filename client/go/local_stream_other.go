//go:build !linux

package gradwire

import "errors"

// openLocal fails: only Linux has such sockets.
func openLocal(string) (wire, error) { return nil, errors.ErrUnsupported }
