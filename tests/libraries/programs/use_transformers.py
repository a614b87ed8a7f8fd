"""Small models of several families, from their configurations: training steps, generation, saving."""

import torch
from safetensors.torch import load_file
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)

torch.manual_seed(0)
tokens = torch.tensor([[1, 5, 7, 2], [1, 9, 3, 2]])


def trained(model, **inputs):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = model(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    assert losses[1] < losses[0] * 1.5, losses
    return model


bert = BertForSequenceClassification(
    BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
)
trained(bert, input_ids=tokens, attention_mask=torch.ones_like(tokens), labels=torch.tensor([0, 1]))
gpt = GPT2LMHeadModel(
    GPT2Config(vocab_size=20, n_positions=32, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
)
trained(gpt, input_ids=tokens, labels=tokens)
gpt.eval()
assert gpt.generate(tokens[:1], max_new_tokens=3, do_sample=False, pad_token_id=0).shape[1] <= 7
llama = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=20,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
)
trained(llama, input_ids=tokens, labels=tokens)
t5 = T5ForConditionalGeneration(
    T5Config(vocab_size=20, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0)
)
trained(t5, input_ids=tokens, labels=tokens)
vit = ViTForImageClassification(
    ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=8
    )
)
trained(vit, pixel_values=torch.randn(2, 3, 16, 16), labels=torch.tensor([0, 1]))
llama.eval()
llama.save_pretrained("llama")
again = LlamaForCausalLM(llama.config)
again.load_state_dict(load_file("llama/model.safetensors"))
again.eval()
assert torch.allclose(again(tokens).logits, llama(tokens).logits, atol=1e-5)
gpt.save_pretrained("gpt")  # whose last layer has the embedding's weight, which is saved once
saved = load_file("gpt/model.safetensors")
assert gpt.state_dict().keys() - saved.keys() == {"lm_head.weight"}
again = GPT2LMHeadModel(gpt.config)
again.load_state_dict(saved, strict=False)
again.tie_weights()
assert again.lm_head.weight is again.transformer.wte.weight
assert torch.allclose(again.eval()(tokens).logits, gpt(tokens).logits, atol=1e-5)
try:
    LlamaForCausalLM.from_pretrained("llama")
except NotImplementedError as refused:
    assert "gradwire" in str(refused) and "meta" in str(refused)
else:
    raise AssertionError("models without values cannot be made")
