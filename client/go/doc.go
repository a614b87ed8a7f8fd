// Package gradwire computes gradients on a gradwire server.
//
// Tensors live on the server. Ops return at once: their commands are queued and sent in batches over one stream. A
// mistake surfaces at the next wait or read, as a *Error with PyTorch's sentence. A tensor made from a failed one fails
// with the first error.
//
//	session, err := gradwire.Connect(ctx, "127.0.0.1:50051")
//	if err != nil { … }
//	defer session.Close()
//	a := gradwire.FromSlice(session, []float32{1, 2, 3}).SetRequiresGrad(true)
//	loss := a.Mul(a).Sum()
//	if err := loss.Backward(ctx); err != nil { … }
//	gradient, err := a.Grad().Float32s(ctx) // 2 4 6
//
// Methods of Tensor and Session have PyTorch's names in Go's spelling, as MatMul's is Matmul; an in-place form ends in
// InPlace. Functions below torch.nn.functional, torch.linalg, torch.fft and torch.special are in packages of these names.
// Options with a default other than the zero value are pointers: use Ptr.
//
// # Errors
//
// A session survives refusals: a refused command changes nothing. After a broken connection the session sends again
// what was not answered, and the server applies nothing twice. Only after WithPatience without an answer it fails.
//
// # Memory
//
// The server keeps a tensor until its Release, the end of the Tidy in which it was made, or a garbage collection here.
// Use Tidy around each step of a loop.
package gradwire
