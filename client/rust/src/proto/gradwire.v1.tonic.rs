// @generated
/// Generated client implementations.
pub mod autograd_service_client {
    #![allow(
        unused_variables,
        dead_code,
        missing_docs,
        clippy::wildcard_imports,
        clippy::let_unit_value,
    )]
    use tonic::codegen::*;
    use tonic::codegen::http::Uri;
    #[derive(Debug, Clone)]
    pub struct AutogradServiceClient<T> {
        inner: tonic::client::Grpc<T>,
    }
    impl AutogradServiceClient<tonic::transport::Channel> {
        /// Attempt to create a new client by connecting to a given endpoint.
        pub async fn connect<D>(dst: D) -> Result<Self, tonic::transport::Error>
        where
            D: TryInto<tonic::transport::Endpoint>,
            D::Error: Into<StdError>,
        {
            let conn = tonic::transport::Endpoint::new(dst)?.connect().await?;
            Ok(Self::new(conn))
        }
    }
    impl<T> AutogradServiceClient<T>
    where
        T: tonic::client::GrpcService<tonic::body::Body>,
        T::Error: Into<StdError>,
        T::ResponseBody: Body<Data = Bytes> + std::marker::Send + 'static,
        <T::ResponseBody as Body>::Error: Into<StdError> + std::marker::Send,
    {
        pub fn new(inner: T) -> Self {
            let inner = tonic::client::Grpc::new(inner);
            Self { inner }
        }
        pub fn with_origin(inner: T, origin: Uri) -> Self {
            let inner = tonic::client::Grpc::with_origin(inner, origin);
            Self { inner }
        }
        pub fn with_interceptor<F>(
            inner: T,
            interceptor: F,
        ) -> AutogradServiceClient<InterceptedService<T, F>>
        where
            F: tonic::service::Interceptor,
            T::ResponseBody: Default,
            T: tonic::codegen::Service<
                http::Request<tonic::body::Body>,
                Response = http::Response<
                    <T as tonic::client::GrpcService<tonic::body::Body>>::ResponseBody,
                >,
            >,
            <T as tonic::codegen::Service<
                http::Request<tonic::body::Body>,
            >>::Error: Into<StdError> + std::marker::Send + std::marker::Sync,
        {
            AutogradServiceClient::new(InterceptedService::new(inner, interceptor))
        }
        /// Compress requests with the given encoding.
        ///
        /// This requires the server to support it otherwise it might respond with an
        /// error.
        #[must_use]
        pub fn send_compressed(mut self, encoding: CompressionEncoding) -> Self {
            self.inner = self.inner.send_compressed(encoding);
            self
        }
        /// Enable decompressing responses.
        #[must_use]
        pub fn accept_compressed(mut self, encoding: CompressionEncoding) -> Self {
            self.inner = self.inner.accept_compressed(encoding);
            self
        }
        /// Limits the maximum size of a decoded message.
        ///
        /// Default: `4MB`
        #[must_use]
        pub fn max_decoding_message_size(mut self, limit: usize) -> Self {
            self.inner = self.inner.max_decoding_message_size(limit);
            self
        }
        /// Limits the maximum size of an encoded message.
        ///
        /// Default: `usize::MAX`
        #[must_use]
        pub fn max_encoding_message_size(mut self, limit: usize) -> Self {
            self.inner = self.inner.max_encoding_message_size(limit);
            self
        }
        pub async fn open_session(
            &mut self,
            request: impl tonic::IntoRequest<super::OpenSessionRequest>,
        ) -> std::result::Result<
            tonic::Response<super::OpenSessionResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/OpenSession",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "OpenSession"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn keep_alive(
            &mut self,
            request: impl tonic::IntoRequest<super::KeepAliveRequest>,
        ) -> std::result::Result<
            tonic::Response<super::KeepAliveResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/KeepAlive",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "KeepAlive"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn close_session(
            &mut self,
            request: impl tonic::IntoRequest<super::CloseSessionRequest>,
        ) -> std::result::Result<
            tonic::Response<super::CloseSessionResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/CloseSession",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "CloseSession"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn create(
            &mut self,
            request: impl tonic::IntoRequest<super::CreateRequest>,
        ) -> std::result::Result<tonic::Response<super::CreateResponse>, tonic::Status> {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/Create",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "Create"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn op(
            &mut self,
            request: impl tonic::IntoRequest<super::OpRequest>,
        ) -> std::result::Result<tonic::Response<super::OpResponse>, tonic::Status> {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/Op",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "Op"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn backward(
            &mut self,
            request: impl tonic::IntoRequest<super::BackwardRequest>,
        ) -> std::result::Result<
            tonic::Response<super::BackwardResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/Backward",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "Backward"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn retain_grad(
            &mut self,
            request: impl tonic::IntoRequest<super::RetainGradRequest>,
        ) -> std::result::Result<
            tonic::Response<super::RetainGradResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/RetainGrad",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "RetainGrad"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn grad(
            &mut self,
            request: impl tonic::IntoRequest<super::GradRequest>,
        ) -> std::result::Result<tonic::Response<super::GradResponse>, tonic::Status> {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/Grad",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "Grad"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn gradients(
            &mut self,
            request: impl tonic::IntoRequest<super::GradientsRequest>,
        ) -> std::result::Result<
            tonic::Response<super::GradientsResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/Gradients",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "Gradients"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn set_grad(
            &mut self,
            request: impl tonic::IntoRequest<super::SetGradRequest>,
        ) -> std::result::Result<
            tonic::Response<super::SetGradResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/SetGrad",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "SetGrad"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn set_requires_grad(
            &mut self,
            request: impl tonic::IntoRequest<super::SetRequiresGradRequest>,
        ) -> std::result::Result<
            tonic::Response<super::SetRequiresGradResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/SetRequiresGrad",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new("gradwire.v1.AutogradService", "SetRequiresGrad"),
                );
            self.inner.unary(req, path, codec).await
        }
        pub async fn set_data(
            &mut self,
            request: impl tonic::IntoRequest<super::SetDataRequest>,
        ) -> std::result::Result<
            tonic::Response<super::SetDataResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/SetData",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "SetData"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn manual_seed(
            &mut self,
            request: impl tonic::IntoRequest<super::ManualSeedRequest>,
        ) -> std::result::Result<
            tonic::Response<super::ManualSeedResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/ManualSeed",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "ManualSeed"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn describe(
            &mut self,
            request: impl tonic::IntoRequest<super::DescribeRequest>,
        ) -> std::result::Result<
            tonic::Response<super::DescribeResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/Describe",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "Describe"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn read(
            &mut self,
            request: impl tonic::IntoRequest<super::ReadRequest>,
        ) -> std::result::Result<tonic::Response<super::ReadResponse>, tonic::Status> {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/Read",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "Read"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn release(
            &mut self,
            request: impl tonic::IntoRequest<super::ReleaseRequest>,
        ) -> std::result::Result<
            tonic::Response<super::ReleaseResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/Release",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "Release"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn graph(
            &mut self,
            request: impl tonic::IntoRequest<super::GraphRequest>,
        ) -> std::result::Result<tonic::Response<super::GraphResponse>, tonic::Status> {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/Graph",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "Graph"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn upload(
            &mut self,
            request: impl tonic::IntoStreamingRequest<Message = super::UploadRequest>,
        ) -> std::result::Result<tonic::Response<super::UploadResponse>, tonic::Status> {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/Upload",
            );
            let mut req = request.into_streaming_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "Upload"));
            self.inner.client_streaming(req, path, codec).await
        }
        pub async fn download(
            &mut self,
            request: impl tonic::IntoRequest<super::DownloadRequest>,
        ) -> std::result::Result<
            tonic::Response<tonic::codec::Streaming<super::DownloadResponse>>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/Download",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "Download"));
            self.inner.server_streaming(req, path, codec).await
        }
        pub async fn share(
            &mut self,
            request: impl tonic::IntoStreamingRequest<Message = super::ShareRequest>,
        ) -> std::result::Result<
            tonic::Response<tonic::codec::Streaming<super::ShareResponse>>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/Share",
            );
            let mut req = request.into_streaming_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "Share"));
            self.inner.streaming(req, path, codec).await
        }
        pub async fn run(
            &mut self,
            request: impl tonic::IntoRequest<super::RunRequest>,
        ) -> std::result::Result<tonic::Response<super::RunResponse>, tonic::Status> {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/Run",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "Run"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn stream(
            &mut self,
            request: impl tonic::IntoStreamingRequest<Message = super::StreamRequest>,
        ) -> std::result::Result<
            tonic::Response<tonic::codec::Streaming<super::StreamResponse>>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/Stream",
            );
            let mut req = request.into_streaming_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "Stream"));
            self.inner.streaming(req, path, codec).await
        }
        pub async fn register_program(
            &mut self,
            request: impl tonic::IntoRequest<super::RegisterProgramRequest>,
        ) -> std::result::Result<
            tonic::Response<super::RegisterProgramResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/RegisterProgram",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new("gradwire.v1.AutogradService", "RegisterProgram"),
                );
            self.inner.unary(req, path, codec).await
        }
        pub async fn run_program(
            &mut self,
            request: impl tonic::IntoRequest<super::RunProgramRequest>,
        ) -> std::result::Result<
            tonic::Response<super::RunProgramResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/RunProgram",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "RunProgram"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn load_program(
            &mut self,
            request: impl tonic::IntoRequest<super::LoadProgramRequest>,
        ) -> std::result::Result<
            tonic::Response<super::LoadProgramResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/LoadProgram",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "LoadProgram"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn save_program(
            &mut self,
            request: impl tonic::IntoRequest<super::SaveProgramRequest>,
        ) -> std::result::Result<
            tonic::Response<super::SaveProgramResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/SaveProgram",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "SaveProgram"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn register_hook(
            &mut self,
            request: impl tonic::IntoRequest<super::RegisterHookRequest>,
        ) -> std::result::Result<
            tonic::Response<super::RegisterHookResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/RegisterHook",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "RegisterHook"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn remove_hook(
            &mut self,
            request: impl tonic::IntoRequest<super::RemoveHookRequest>,
        ) -> std::result::Result<
            tonic::Response<super::RemoveHookResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/RemoveHook",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "RemoveHook"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn resume_backward(
            &mut self,
            request: impl tonic::IntoRequest<super::ResumeBackwardRequest>,
        ) -> std::result::Result<
            tonic::Response<super::ResumeBackwardResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/ResumeBackward",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new("gradwire.v1.AutogradService", "ResumeBackward"),
                );
            self.inner.unary(req, path, codec).await
        }
        pub async fn record_function(
            &mut self,
            request: impl tonic::IntoRequest<super::RecordFunctionRequest>,
        ) -> std::result::Result<
            tonic::Response<super::RecordFunctionResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/RecordFunction",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new("gradwire.v1.AutogradService", "RecordFunction"),
                );
            self.inner.unary(req, path, codec).await
        }
        pub async fn checkpoint(
            &mut self,
            request: impl tonic::IntoRequest<super::CheckpointRequest>,
        ) -> std::result::Result<
            tonic::Response<super::CheckpointResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/Checkpoint",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "Checkpoint"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn name_edge(
            &mut self,
            request: impl tonic::IntoRequest<super::NameEdgeRequest>,
        ) -> std::result::Result<
            tonic::Response<super::NameEdgeResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/NameEdge",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "NameEdge"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn pack_saved(
            &mut self,
            request: impl tonic::IntoRequest<super::PackSavedRequest>,
        ) -> std::result::Result<
            tonic::Response<super::PackSavedResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/PackSaved",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "PackSaved"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn saved_value(
            &mut self,
            request: impl tonic::IntoRequest<super::SavedValueRequest>,
        ) -> std::result::Result<
            tonic::Response<super::SavedValueResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/SavedValue",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "SavedValue"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn set_counters(
            &mut self,
            request: impl tonic::IntoRequest<super::SetCountersRequest>,
        ) -> std::result::Result<
            tonic::Response<super::SetCountersResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/SetCounters",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "SetCounters"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn collective(
            &mut self,
            request: impl tonic::IntoRequest<super::CollectiveRequest>,
        ) -> std::result::Result<
            tonic::Response<super::CollectiveResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/Collective",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "Collective"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn cancel(
            &mut self,
            request: impl tonic::IntoRequest<super::CancelRequest>,
        ) -> std::result::Result<tonic::Response<super::CancelResponse>, tonic::Status> {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/Cancel",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "Cancel"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn save_session(
            &mut self,
            request: impl tonic::IntoRequest<super::SaveSessionRequest>,
        ) -> std::result::Result<
            tonic::Response<super::SaveSessionResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/SaveSession",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "SaveSession"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn restore_session(
            &mut self,
            request: impl tonic::IntoRequest<super::RestoreSessionRequest>,
        ) -> std::result::Result<
            tonic::Response<super::RestoreSessionResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/RestoreSession",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new("gradwire.v1.AutogradService", "RestoreSession"),
                );
            self.inner.unary(req, path, codec).await
        }
        pub async fn list_snapshots(
            &mut self,
            request: impl tonic::IntoRequest<super::ListSnapshotsRequest>,
        ) -> std::result::Result<
            tonic::Response<super::ListSnapshotsResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/ListSnapshots",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "ListSnapshots"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn delete_snapshot(
            &mut self,
            request: impl tonic::IntoRequest<super::DeleteSnapshotRequest>,
        ) -> std::result::Result<
            tonic::Response<super::DeleteSnapshotResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/DeleteSnapshot",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new("gradwire.v1.AutogradService", "DeleteSnapshot"),
                );
            self.inner.unary(req, path, codec).await
        }
        pub async fn save_file(
            &mut self,
            request: impl tonic::IntoRequest<super::SaveFileRequest>,
        ) -> std::result::Result<
            tonic::Response<super::SaveFileResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/SaveFile",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "SaveFile"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn load_file(
            &mut self,
            request: impl tonic::IntoRequest<super::LoadFileRequest>,
        ) -> std::result::Result<
            tonic::Response<super::LoadFileResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/LoadFile",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "LoadFile"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn list_files(
            &mut self,
            request: impl tonic::IntoRequest<super::ListFilesRequest>,
        ) -> std::result::Result<
            tonic::Response<super::ListFilesResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/ListFiles",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "ListFiles"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn delete_file(
            &mut self,
            request: impl tonic::IntoRequest<super::DeleteFileRequest>,
        ) -> std::result::Result<
            tonic::Response<super::DeleteFileResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/DeleteFile",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "DeleteFile"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn server_info(
            &mut self,
            request: impl tonic::IntoRequest<super::ServerInfoRequest>,
        ) -> std::result::Result<
            tonic::Response<super::ServerInfoResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/ServerInfo",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "ServerInfo"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn list_ops(
            &mut self,
            request: impl tonic::IntoRequest<super::ListOpsRequest>,
        ) -> std::result::Result<
            tonic::Response<super::ListOpsResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/ListOps",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "ListOps"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn list_sessions(
            &mut self,
            request: impl tonic::IntoRequest<super::ListSessionsRequest>,
        ) -> std::result::Result<
            tonic::Response<super::ListSessionsResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/ListSessions",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "ListSessions"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn end_session(
            &mut self,
            request: impl tonic::IntoRequest<super::EndSessionRequest>,
        ) -> std::result::Result<
            tonic::Response<super::EndSessionResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/gradwire.v1.AutogradService/EndSession",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("gradwire.v1.AutogradService", "EndSession"));
            self.inner.unary(req, path, codec).await
        }
    }
}
